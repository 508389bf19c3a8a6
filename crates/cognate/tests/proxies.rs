//! Proxies between the nodes of a cluster: what goes from one node to another can be held back,
//! and delayed, one way or both, as a network would. What was held back arrives once it heals.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::cluster::SIZE;

/// What happens to bytes from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Open,
    /// Everything arrives so much later.
    Slow(Duration),
    Held,
}

#[derive(Debug)]
struct Weather {
    /// By sender and receiver.
    ways: [[Way; SIZE]; SIZE],
    is_over: bool,
}

#[derive(Debug)]
struct Sky {
    weather: Mutex<Weather>,
    changed: Condvar,
}

impl Sky {
    fn change(&self, change: impl FnOnce(&mut Weather)) {
        change(&mut self.weather.lock().expect("no panic"));
        self.changed.notify_all();
    }

    /// Waits until bytes may go this way; `None` once it is over.
    fn passes(&self, from: usize, to: usize) -> Option<Duration> {
        let weather = self.weather.lock().expect("no panic");
        let is_held = |weather: &mut Weather| !weather.is_over && weather.ways[from][to] == Way::Held;
        let weather = self.changed.wait_while(weather, is_held).expect("no panic");
        match weather.ways[from][to] {
            _ if weather.is_over => None,
            Way::Slow(delay) => Some(delay),
            Way::Open | Way::Held => Some(Duration::ZERO),
        }
    }
}

/// One proxy for every node and every other node that it dials. Nodes are numbered from 1.
#[derive(Debug)]
pub(crate) struct Proxies {
    sky: Arc<Sky>,
    /// By who dials and who is dialed; a node listens on its own entry.
    addresses: Vec<Vec<SocketAddr>>,
}

impl Proxies {
    /// In front of nodes at these addresses, which need not run yet.
    pub(crate) fn before(nodes: &[SocketAddr]) -> Proxies {
        let weather = Mutex::new(Weather { ways: [[Way::Open; SIZE]; SIZE], is_over: false });
        let sky = Arc::new(Sky { weather, changed: Condvar::new() });
        let address = |from: usize, to: usize| {
            if from == to {
                return nodes[to];
            }
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address");
            let (sky, target) = (Arc::clone(&sky), nodes[to]);
            thread::spawn(move || accept(&listener, target, &sky, from, to));
            address
        };
        let list = |from: usize| (0..nodes.len()).map(|to| address(from, to)).collect();
        let addresses = (0..nodes.len()).map(list).collect();
        Proxies { sky, addresses }
    }

    /// The list of all nodes that a node is given.
    pub(crate) fn list(&self, node: usize) -> String {
        let entry = |(at, address): (usize, &SocketAddr)| format!("{}={address}", at + 1);
        self.addresses[node - 1].iter().enumerate().map(entry).collect::<Vec<_>>().join(",")
    }

    fn set(&self, from: impl Fn(usize) -> bool, to: impl Fn(usize) -> bool, way: Way) {
        self.sky.change(|weather| {
            for (sender, ways) in weather.ways.iter_mut().enumerate() {
                for (receiver, found) in ways.iter_mut().enumerate() {
                    if from(sender + 1) && to(receiver + 1) {
                        *found = way;
                    }
                }
            }
        });
    }

    /// Nothing that a node says reaches another one.
    pub(crate) fn mute(&self, node: usize) {
        self.set(|from| from == node, |_| true, Way::Held);
    }

    /// Nothing that others say reaches a node.
    pub(crate) fn deafen(&self, node: usize) {
        self.set(|_| true, |to| to == node, Way::Held);
    }

    /// Everything arrives later.
    pub(crate) fn slow(&self, delay: Duration) {
        self.set(|_| true, |_| true, Way::Slow(delay));
    }

    pub(crate) fn heal(&self) {
        self.set(|_| true, |_| true, Way::Open);
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.sky.change(|weather| weather.is_over = true);
    }
}

/// Takes connections for a node. It ends with the process of the tests.
fn accept(listener: &TcpListener, target: SocketAddr, sky: &Arc<Sky>, from: usize, to: usize) {
    while let Ok((near, _)) = listener.accept() {
        // Nobody is there: the end of the connection says so.
        let Ok(far) = TcpStream::connect(target) else { continue };
        for socket in [&near, &far] {
            socket.set_nodelay(true).expect("set");
        }
        let ends = [near.try_clone(), far.try_clone()].map(|end| end.expect("a descriptor"));
        let [near_again, far_again] = ends;
        for (input, output, from, to) in [(near, far, from, to), (far_again, near_again, to, from)] {
            let sky = Arc::clone(sky);
            thread::spawn(move || pump(input, output, &sky, from, to));
        }
    }
}

fn pump(mut input: TcpStream, mut output: TcpStream, sky: &Sky, from: usize, to: usize) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = input.read(&mut buffer).unwrap_or(0);
        // The end of a connection takes the same way as its bytes.
        let Some(delay) = sky.passes(from, to) else { break };
        thread::sleep(delay);
        if count == 0 || output.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = output.shutdown(Shutdown::Write);
    let _ = input.shutdown(Shutdown::Read);
}
