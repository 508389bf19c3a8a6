//! How lists of privileges change: GRANT, REVOKE, and a new owner.
//!
//! ```text
//! {ann=r*w/own}            GRANT SELECT TO bob, by ann        {ann=r*w/own, bob=r/ann}
//! {ann=r*w/own,bob=r/ann}  REVOKE SELECT FROM ann CASCADE     {ann=w/own}
//! ```
//!
//! An item says what one role has from another one. What somebody may give on he has from another,
//! or he is the owner, who may always; so nothing is left of what was given by one who may not any
//! more.

use super::{AclItem, Oid, Privileges};

/// Why a list cannot change so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Others have from him what he is to lose, and CASCADE was not said.
    Dependent,
    /// The right to give on would come back to one whom it comes from.
    Circular,
}

fn place(list: &[AclItem], grantee: Oid, grantor: Oid) -> Option<usize> {
    list.iter().position(|item| item.grantee == grantee && item.grantor == grantor)
}

fn grantable(list: &[AclItem], role: Oid) -> Privileges {
    let own = list.iter().filter(|item| item.grantee == role);
    own.fold(Privileges::NONE, |found, item| found | item.grantable)
}

/// Gives what an item says.
pub fn grant(list: &mut Vec<AclItem>, owner: Oid, item: AclItem) -> Result<(), Refused> {
    if !item.grantable.is_empty() && item.grantor != owner {
        let mut without = list.clone();
        let lost = grantable(&without, item.grantee);
        let grantors: Vec<Oid> =
            without.iter().filter(|known| known.grantee == item.grantee).map(|known| known.grantor).collect();
        for grantor in grantors {
            revoke(&mut without, owner, (item.grantee, grantor), Privileges::NONE, lost, true)?;
        }
        if item.grantee == item.grantor || !grantable(&without, item.grantor).has_all(item.grantable) {
            return Err(Refused::Circular);
        }
    }
    match place(list, item.grantee, item.grantor) {
        Some(at) => {
            let known = &mut list[at];
            known.privileges = known.privileges | item.privileges;
            known.grantable = known.grantable | item.grantable;
        }
        None => list.push(item),
    }
    Ok(())
}

/// Takes privileges, and rights to give them on, that one has from another: `who` is both.
pub fn revoke(
    list: &mut Vec<AclItem>,
    owner: Oid,
    who: (Oid, Oid),
    privileges: Privileges,
    options: Privileges,
    cascade: bool,
) -> Result<(), Refused> {
    let (grantee, grantor) = who;
    let Some(at) = place(list, grantee, grantor) else { return Ok(()) };
    let lost = list[at].grantable & options;
    list[at].privileges = list[at].privileges & !privileges;
    list[at].grantable = list[at].grantable & !options;
    if list[at].privileges.is_empty() && list[at].grantable.is_empty() {
        list.remove(at);
    }
    // The owner never loses the right to give.
    if grantee == owner || lost.is_empty() {
        return Ok(());
    }
    let lost = lost & !grantable(list, grantee);
    loop {
        let given = list.iter().find(|item| item.grantor == grantee && item.privileges.has_any(lost));
        let Some(given) = given.copied() else { return Ok(()) };
        if !cascade {
            return Err(Refused::Dependent);
        }
        revoke(list, owner, (given.grantee, grantee), lost, lost, true)?;
    }
}

/// A new owner has what the old one had, and has given what he gave.
pub fn change_owner(list: &[AclItem], old: Oid, new: Oid) -> Vec<AclItem> {
    let renamed = |oid: Oid| if oid == old { new } else { oid };
    let mut changed: Vec<AclItem> = Vec::with_capacity(list.len());
    for item in list {
        let item = AclItem { grantee: renamed(item.grantee), grantor: renamed(item.grantor), ..*item };
        match place(&changed, item.grantee, item.grantor) {
            Some(at) => {
                changed[at].privileges = changed[at].privileges | item.privileges;
                changed[at].grantable = changed[at].grantable | item.grantable;
            }
            None => changed.push(item),
        }
    }
    changed
}

/// What a role has, and has given, is gone, and what others have given on of that. An owner keeps
/// what is his by that.
pub fn forget(list: &mut Vec<AclItem>, owner: Oid, role: Oid) {
    if role == owner {
        return;
    }
    let own = list.iter().filter(|item| item.grantee == role);
    let grantors: Vec<Oid> = own.map(|item| item.grantor).collect();
    for grantor in grantors {
        // With CASCADE nothing is refused.
        let _ = revoke(list, owner, (role, grantor), !Privileges::NONE, !Privileges::NONE, true);
    }
    list.retain(|item| item.grantee != role && item.grantor != role);
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Privileges = Privileges::SELECT;

    fn item(grantee: Oid, grantor: Oid, grantable: Privileges) -> AclItem {
        AclItem { grantee, grantor, privileges: READ, grantable }
    }

    #[test]
    fn what_was_given_on_goes_with_the_right_to_give() {
        let mut list = vec![item(1, 1, Privileges::NONE)];
        grant(&mut list, 1, item(2, 1, READ)).unwrap();
        grant(&mut list, 1, item(3, 2, READ)).unwrap();
        grant(&mut list, 1, item(0, 3, Privileges::NONE)).unwrap();
        let before = list.clone();
        let refused = revoke(&mut list, 1, (2, 1), READ, READ, false);
        assert_eq!(refused, Err(Refused::Dependent));
        list = before;
        revoke(&mut list, 1, (2, 1), READ, READ, true).unwrap();
        assert_eq!(list, [item(1, 1, Privileges::NONE)]);
    }

    #[test]
    fn nobody_gives_his_right_back_to_where_it_is_from() {
        let mut list = vec![item(2, 1, READ), item(3, 2, READ)];
        assert_eq!(grant(&mut list, 1, item(2, 3, READ)), Err(Refused::Circular));
        grant(&mut list, 1, item(4, 3, READ)).unwrap();
        assert_eq!(list.len(), 3);
    }

    #[test]
    fn what_a_forgotten_role_has_given_is_with_nobody_any_more() {
        let mut list = vec![item(1, 1, Privileges::NONE)];
        grant(&mut list, 1, item(2, 1, READ)).unwrap();
        grant(&mut list, 1, item(3, 2, READ)).unwrap();
        grant(&mut list, 1, item(4, 3, Privileges::NONE)).unwrap();
        grant(&mut list, 1, item(5, 1, Privileges::NONE)).unwrap();
        forget(&mut list, 1, 1);
        assert_eq!(list.len(), 5, "the owner's");
        forget(&mut list, 1, 2);
        assert_eq!(list, [item(1, 1, Privileges::NONE), item(5, 1, Privileges::NONE)]);
    }

    #[test]
    fn owners_change_in_lists_too() {
        let list = [item(1, 1, Privileges::NONE), item(2, 1, READ)];
        assert_eq!(change_owner(&list, 1, 2), [item(2, 2, READ)]);
    }
}
