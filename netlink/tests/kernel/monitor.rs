//! Owns: every commit is noticed, and whose it was. Knows nothing of what to do about it.

use crate::ruleset::{product, program, table_id};
use netlink::{Commit, Monitor, Nft, Notice, testns};
use nft_ir::{Family, Op, TableId, TableName, Transaction};

fn commits(monitor: &mut Monitor) -> Vec<Commit> {
    // Notices are queued before the commit returns to whoever made it.
    let notices = monitor.drain().unwrap();
    notices
        .into_iter()
        .map(|notice| match notice {
            Notice::Commit(commit) => commit,
            Notice::Lost => panic!("notices were lost"),
        })
        .collect()
}

#[test]
fn own_commits_and_those_of_others_are_told_apart() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let mut monitor = Monitor::open().unwrap();
        assert_eq!(commits(&mut monitor), []);

        let id = table_id(Family::Ip);
        let own = nft.commit(&program(&id, &product(Family::Ip)), None).unwrap();
        let seen = commits(&mut monitor);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].generation, seen[0].port), (own, nft.port()));
        assert!(seen[0].tables.iter().eq([&id]));

        testns::command("nft", &["add", "table", "ip6", "other"], "").unwrap();
        testns::command("nft", &["add", "table", "inet", "third"], "").unwrap();
        testns::command("nft", &["delete", "element", "ip", "proxier", "cluster-ips", "{ 10.0.0.1 }"], "")
            .unwrap();
        let seen = commits(&mut monitor);
        let other = TableId { family: Family::Ip6, name: TableName::literal("other") };
        let tables: Vec<Vec<_>> = seen.iter().map(|commit| commit.tables.iter().cloned().collect()).collect();
        assert_eq!(tables, [vec![other], vec![], vec![id.clone()]]);
        assert!(seen.iter().all(|commit| commit.port != nft.port() && commit.pid.is_some_and(|pid| pid > 0)));
        assert!(seen.iter().all(|commit| commit.process.as_deref() == Some("nft")));

        testns::command("nft", &["flush", "ruleset"], "").unwrap();
        let seen = commits(&mut monitor);
        assert!(seen.iter().any(|commit| commit.tables.contains(&id)), "{seen:?}");
        assert_eq!(seen.last().unwrap().generation, nft.generation().unwrap());
        assert_eq!(commits(&mut monitor), []);
    });
}

#[test]
fn a_loss_of_notices_is_said_and_listening_goes_on() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let mut monitor = Monitor::with_buffer(4096).unwrap();
        let id = table_id(Family::Ip);
        let transaction = program(&id, &product(Family::Ip));
        for _ in 0..20 {
            nft.commit(&transaction, None).unwrap();
            nft.commit(&Transaction { ops: vec![Op::DeleteTable { table: id.clone() }] }, None).unwrap();
        }
        assert!(monitor.drain().unwrap().contains(&Notice::Lost));
        let own =
            nft.commit(&Transaction { ops: vec![Op::AddTable { table: id, comment: None }] }, None).unwrap();
        assert!(commits(&mut monitor).iter().any(|commit| commit.generation == own));
    });
}

#[test]
fn a_pause_misses_own_commits_only() {
    testns::run(|| {
        let mut nft = Nft::open().unwrap();
        let mut monitor = Monitor::open().unwrap();
        let ops = vec![Op::AddTable { table: table_id(Family::Ip), comment: None }];
        let transaction = Transaction { ops };
        monitor.pause().unwrap();
        let own = nft.commit(&transaction, None).unwrap();
        assert_eq!(monitor.resume(&mut nft, own).unwrap(), []);

        testns::command("nft", &["add", "table", "ip", "before"], "").unwrap();
        monitor.pause().unwrap();
        let own = nft.commit(&transaction, None).unwrap();
        testns::command("nft", &["add", "table", "ip", "meanwhile"], "").unwrap();
        let notices = monitor.resume(&mut nft, own).unwrap();
        assert!(matches!(&notices[..], [Notice::Commit(_), Notice::Lost]), "{notices:?}");

        testns::command("nft", &["add", "table", "ip", "after"], "").unwrap();
        assert_eq!(commits(&mut monitor).len(), 1);
    });
}

#[test]
fn a_task_is_woken_by_a_commit() {
    testns::run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let deadline = std::time::Duration::from_secs(10);
            let mut nft = Nft::open().unwrap();
            let mut monitor = Monitor::open().unwrap();
            let ready = netlink::readable(&monitor).unwrap();
            for family in Family::ALL {
                let waiting = async {
                    ready.readable().await.unwrap().clear_ready();
                    monitor.drain().unwrap()
                };
                let committing = async {
                    tokio::task::yield_now().await;
                    let ops = vec![Op::AddTable { table: table_id(family), comment: None }];
                    nft.commit(&Transaction { ops }, None).unwrap()
                };
                let (seen, own) = tokio::time::timeout(deadline, async { tokio::join!(waiting, committing) })
                    .await
                    .unwrap();
                assert!(
                    matches!(&seen[..], [Notice::Commit(commit)] if commit.generation == own),
                    "{seen:?}"
                );
            }
        });
    });
}
