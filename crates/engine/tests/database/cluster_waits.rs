//! Who waits until a node has come to a position of the order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::cluster::Cluster;

/// A task that notes that it was woken.
#[derive(Default)]
struct Task(AtomicBool);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client may wait for a position that never comes, be interrupted, and do so again: nothing may be
/// left of it, nor may it be there once for each look.
#[test]
fn who_waits_for_a_position_and_gives_up_is_forgotten() {
    let cluster = Cluster::of(1);
    let task = Arc::new(Task::default());
    let waker = Waker::from(Arc::clone(&task));
    let mut context = Context::from_waker(&waker);
    let mut next = Box::pin(cluster.node(1).wait_applied(1));
    let mut never = Box::pin(cluster.node(1).wait_applied(1_000_000));
    for _ in 0..3 {
        assert!(next.as_mut().poll(&mut context).is_pending());
        assert!(never.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(Arc::strong_count(&task), 4, "here, in its waker, and once for each wait");
    cluster.write(1, &[("key", "content")]);
    assert!(task.0.load(Ordering::Relaxed), "it is woken");
    assert!(matches!(next.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
    assert_eq!(Arc::strong_count(&task), 3);
    drop(never);
    assert_eq!(Arc::strong_count(&task), 2);
}
