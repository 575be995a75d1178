//! No text makes the reader panic, and what it accepts holds its promises.

use proptest::prelude::*;

use super::super::super::diagnostic::render;
use super::super::super::graph::check_graph;
use super::*;

/// The text of a valid definition that uses most of the grammar, to be mutated.
const SEED: &str = "x-d: &d [a, b]\nname: 'n'\nenv: {A: \"1\\n\"}\ntasks:\n  - name: a\n    cmd: |\n      echo\n  - {name: b, cmd: [x, 3.10], timeout_s: 1.5}\n  - {name: c, kwargs: {cmd: x}, depends_on: *d, dep_policy: 2}\n# end\n";
const SEED_JSON: &str = "{\"name\": \"n\", \"tasks\": [{\"name\": \"a\", \"cmd\": [\"x\\u00e4\", 3.10, null]}, {\"name\": \"b\", \"cmd\": \"x\", \"depends_on\": [\"a\"]}]}";

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(200), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        name in prop::sample::select(vec!["w.yaml", "w.json", "-"]),
    ) {
        let source = Source::new(name, bytes);
        if let Err(problems) = parse(&source) {
            prop_assert!(!problems.diagnostics.is_empty());
            prop_assert!(render(&source, &problems.diagnostics, true).contains(name));
        }
    }

    #[test]
    fn no_mutation_of_a_definition_makes_it_panic(
        json in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8, "[\\[\\]{}:,&*#|>'\"\\-?! \t\r\n~a-cé0-9\\\\u]{0,3}"), 1..6),
    ) {
        let (name, seed) = if json { ("w.json", SEED_JSON) } else { ("w.yaml", SEED) };
        let mut text: Vec<char> = seed.chars().collect();
        for (at, edit, piece) in edits {
            let at = at.index(text.len());
            let end = (at + usize::from(edit) * 4).min(text.len());
            text.splice(at..end, piece.chars());
            if text.is_empty() { break; }
        }
        let text: String = text.into_iter().collect();
        let source = Source::new(name, text);
        match parse(&source) {
            Ok(parsed) => {
                check_graph(&parsed.definition).unwrap();
                let stored: Definition = serde_json::from_str(&parsed.definition.canonical_json()).unwrap();
                prop_assert_eq!(stored, parsed.definition);
            }
            Err(problems) => {
                prop_assert!(problems.diagnostics.iter().any(|d| d.severity == Severity::Error));
                prop_assert!(render(&source, &problems.diagnostics, false).starts_with(name));
            }
        }
    }
}
