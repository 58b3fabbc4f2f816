//! Owns: what `nft_ir` says a kernel does with a transaction is what this kernel does. Knows nothing of what is in it.

use netlink::{Error, Nft, testns};
use nft_ir::apply::{Errno, Reason};
use nft_ir::arbitrary::{self, Dialect, table_id};
use nft_ir::diff::diff;
use nft_ir::{Family, Op, Ruleset, Transaction};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;

fn dump(nft: &mut Nft) -> Ruleset {
    let tables = Family::ALL.into_iter().filter_map(|family| {
        let id = table_id(family);
        let dump = nft.dump_table(&id).unwrap()?;
        Some((id, dump.table))
    });
    Ruleset { tables: tables.collect() }
}

fn reset(nft: &mut Nft) {
    for family in Family::ALL {
        let table = table_id(family);
        let ops = vec![Op::AddTable { table: table.clone(), comment: None }, Op::DeleteTable { table }];
        nft.commit(&Transaction { ops }, None).unwrap();
    }
}

#[test]
fn the_difference_leads_the_kernel_from_old_to_new() {
    testns::run(|| {
        let nft = RefCell::new(Nft::open().unwrap());
        let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
        let rulesets = || arbitrary::ruleset(Dialect::Kernel);
        TestRunner::new(config)
            .run(&(rulesets(), rulesets()), |(old, new)| {
                let nft = &mut *nft.borrow_mut();
                reset(nft);
                for (from, to) in [(&Ruleset::default(), &old), (&old, &new)] {
                    let way = diff(from, to);
                    for part in [&way.now, &way.later] {
                        nft.commit(part, None)
                            .map_err(|error| TestCaseError::fail(format!("{error}\n{part}")))?;
                    }
                    prop_assert_eq!(&dump(nft), to);
                }
                let again = diff(&dump(nft), &new);
                prop_assert!(again.is_empty(), "{}", again.now);
                Ok(())
            })
            .unwrap();
    });
}

/// What is left of an element's time is the kernel's to count.
fn without_time(mut ruleset: Ruleset) -> Ruleset {
    for set in ruleset.tables.values_mut().flat_map(|table| table.sets.values_mut()) {
        set.elements.values_mut().for_each(|element| element.expires = None);
    }
    ruleset
}

#[test]
fn what_is_refused_here_is_refused_there() {
    testns::run(|| {
        let nft = RefCell::new(Nft::open().unwrap());
        let config = Config { cases: 512, failure_persistence: None, ..Config::default() };
        let outcomes = RefCell::new(std::collections::BTreeMap::<String, usize>::new());
        TestRunner::new(config)
            .run(&arbitrary::ruleset_and_transaction(Family::Ip), |(start, transaction)| {
                let nft = &mut *nft.borrow_mut();
                reset(nft);
                nft.commit(&diff(&Ruleset::default(), &start).now, None).unwrap();
                let mut model = start;
                let said = model.apply(&transaction);
                // Where the model is stricter by its own word, and where the transaction is not about the sets that are
                // there (what is malformed how is the encoder's matter).
                let stricter = |reason: &Reason| match reason {
                    Reason::Errno(errno, why) => {
                        matches!(errno, Errno::EINVAL | Errno::ELOOP) || *why == "is not empty"
                    }
                    _ => true,
                };
                if matches!(&said, Err(refusal) if stricter(&refusal.reason)) {
                    return Ok(());
                }
                let expected = said
                    .as_ref()
                    .err()
                    .map(|refusal| (refusal.op, refusal.reason.errno().map(|errno| errno.number())));
                *outcomes.borrow_mut().entry(format!("{:?}", expected.map(|e| e.1))).or_default() += 1;
                let answered = match nft.commit(&transaction, None) {
                    Ok(_) => None,
                    Err(Error::Refused { refusals }) => {
                        let first = refusals.iter().find(|refusal| refusal.op.is_some());
                        Some(first.map_or((usize::MAX, None), |first| (first.op.unwrap(), Some(first.errno))))
                    }
                    Err(error) => return Err(TestCaseError::fail(format!("{error}\n{transaction}"))),
                };
                prop_assert_eq!(expected, answered, "{:?}\n{}", said, transaction);
                prop_assert_eq!(without_time(dump(nft)), without_time(model), "{}", transaction);
                Ok(())
            })
            .unwrap();
        eprintln!("{:?}", outcomes.borrow());
    });
}
