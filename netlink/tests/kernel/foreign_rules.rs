//! Owns: rules and chains of others are recognised and taken out, and nothing beside them. Knows nothing of iptables.

use netlink::{Error, Nft, Removal, testns};
use nft_ir::{ChainName, Family, TableId, TableName};

const TEXT: &str = "
table ip nat {
    chain theirs { counter accept; }
    chain other { jump theirs; }
    chain first { goto theirs; }
    chain prerouting {
        type nat hook prerouting priority -100; policy accept;
        tcp dport 80 counter comment \"mine\";
        counter jump first comment \"leads to them\";
        ip saddr 192.0.2.1 jump first;
    }
}
";

fn list() -> String {
    testns::command("nft", &["--stateless", "list", "ruleset"], "").unwrap()
}

#[test]
fn rules_and_chains_of_others_are_taken_out() {
    testns::run(|| {
        testns::command("nft", &["-f", "-"], TEXT).unwrap();
        let mut nft = Nft::open().unwrap();
        let id = TableId { family: Family::Ip, name: TableName::literal("nat") };
        let table = nft.foreign_table(&id).unwrap();
        let chain = ChainName::literal;
        assert_eq!(table.generation, nft.generation().unwrap());
        assert_eq!(table.chains.len(), 4);
        let of =
            |name: &str| table.rules.iter().filter(|rule| rule.chain.as_str() == name).collect::<Vec<_>>();
        let rules = of("prerouting");
        let comments: Vec<_> = rules.iter().map(|rule| rule.comment.as_deref()).collect();
        assert_eq!(comments, [Some("mine"), Some("leads to them"), None]);
        assert_eq!(rules[1].targets, [chain("first")]);
        assert_eq!((&of("first")[0].targets, &of("theirs")[0].targets), (&vec![chain("theirs")], &vec![]));

        // A chain that somebody else uses: nothing at all is taken out.
        let before = list();
        let jumps = [rules[1], rules[2]].map(|rule| (rule.chain.clone(), rule.handle));
        let mut removal = Removal {
            table: id.clone(),
            rules: jumps.to_vec(),
            chains: vec![chain("first"), chain("theirs")],
        };
        let refused = nft.remove(&removal, None).unwrap_err();
        assert!(
            matches!(&refused, Error::Refused { refusals } if refusals[0].object.contains("theirs")),
            "{refused}"
        );
        assert_eq!(list(), before);

        removal.chains.pop();
        let generation = nft.remove(&removal, Some(table.generation)).unwrap();
        assert!(generation > table.generation);
        let after = list();
        assert!(after.contains("mine") && after.contains("chain other"), "{after}");
        assert!(!after.contains("first") && !after.contains("192.0.2.1"), "{after}");

        let nothing = Removal { table: id, rules: vec![], chains: vec![] };
        assert!(nothing.is_empty());
        let stale = nft.remove(&removal, Some(table.generation)).unwrap_err();
        assert!(matches!(stale, Error::Stale { .. }), "{stale}");
        let missing = TableId { family: Family::Ip6, name: TableName::literal("nat") };
        assert_eq!(nft.foreign_table(&missing).unwrap().rules, []);
    });
}
