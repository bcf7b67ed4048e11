//! Backups of several databases in one directory.

use crate::common;

use common::Workplace;

/// `backup create db2 backups --keep 1` deleted the backups of other databases in the directory.
#[test]
fn backup_create_with_keep_leaves_backups_of_other_databases() {
    let place = Workplace::new();
    for db in ["one", "two"] {
        place.ok(&format!("put {db} t a 1 --create"));
    }
    place.ok("backup create one backups");
    assert!(!place.ok("backup list backups").contains("database"));
    place.ok("backup create one backups");
    let created = place.ok("backup create two backups --keep 1 --json");
    assert!(created.contains("\"deleted\":[]"), "{created}");
    assert!(place.ok("backup create two backups --keep 1 --json").contains("\"deleted\":[3]"));
    let listed = place.ok("backup list backups");
    let databases: Vec<&str> = listed.lines().map(|line| line.rsplit("\tdatabase ").next().unwrap()).collect();
    assert_eq!(databases.len(), 3, "{listed}");
    assert!(databases[0] == databases[1] && databases[1] != databases[2] && databases[2].len() == 16, "{listed}");
    assert_eq!(place.ok("backup prune backups --keep 1 --json"), "{\"deleted\":[1]}\n");
    assert_eq!(place.ok("backup list backups").lines().count(), 2);
}
