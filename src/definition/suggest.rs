//! What the author may have meant: the nearest known name, and what tells apart names that look alike.

/// The candidate nearest to `word`, when it is near enough to be meant: one that looks the same first, else the fewest edits.
pub(super) fn nearest<'c>(
    word: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    let folded = fold(word);
    let length = word.chars().count();
    // A third of the word may be wrong, one character at least.
    let most = (length / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        let difference = candidate.chars().count().abs_diff(length);
        if difference > most + 2 {
            continue;
        }
        if fold(candidate) == folded {
            return Some(candidate);
        }
        // One edit makes any word of one letter any other.
        if difference > most || length < 2 {
            continue;
        }
        let edits = strsim::osa_distance(word, candidate);
        if edits <= most && best.is_none_or(|(fewest, _)| edits < fewest) {
            best = Some((edits, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// How two names differ where the eye may not see it: the code points, when characters outside ASCII are part of it, or blanks.
pub(super) fn difference(word: &str, other: &str) -> Option<String> {
    let visible = |c: char| c.is_ascii_graphic();
    let common = |c: char, text: &str| text.contains(c);
    let odd = |text: &str, against: &str| {
        let differs = |c: &char| !visible(*c) && !common(*c, against);
        text.chars().find(differs)
    };
    let point = |c: char| {
        let shown = if c.is_control() || c.is_whitespace() || is_invisible(c) {
            String::new()
        } else {
            format!("`{c}` ")
        };
        format!("{shown}U+{:04X}", u32::from(c))
    };
    if word.trim() == other {
        return Some("there is a blank around the name".to_owned());
    }
    if odd(word, other).is_none() && odd(other, word).is_none() {
        return None;
    }
    let length = word.chars().count();
    if length == other.chars().count() {
        let pairs: Vec<_> = word
            .chars()
            .zip(other.chars())
            .filter(|(a, b)| a != b)
            .take(3)
            .map(|(a, b)| format!("{}, not {}", point(a), point(b)))
            .collect();
        return Some(pairs.join("; "));
    }
    let found = odd(word, other).map(|c| format!("{} is in this name only", point(c)));
    let missed = odd(other, word).map(|c| format!("{} is not in this name", point(c)));
    found.or(missed)
}

/// The name as the eye sees it: without case, blanks at the ends and invisible characters, look-alikes of Latin letters as those.
fn fold(name: &str) -> String {
    let seen = name.trim().chars().filter(|c| !is_invisible(*c));
    seen.map(latin).flat_map(char::to_lowercase).collect()
}

const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}'
    )
}

/// The Latin letter that a Cyrillic, Greek or full-width one, a dash or a blank looks like.
fn latin(c: char) -> char {
    const CYRILLIC: &str = "АВЕЅІЈКМНОРСТУХаеѕіјорсухԁһ";
    const CYRILLIC_AS: &str = "ABESIJKMHOPCTYXaesijopcyxdh";
    const GREEK: &str = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧονι";
    const GREEK_AS: &str = "ABEZHIKMNOPTYXovi";
    if c.is_ascii() {
        return c;
    }
    for (table, letters) in [(CYRILLIC, CYRILLIC_AS), (GREEK, GREEK_AS)] {
        if let Some(at) = table.chars().position(|known| known == c) {
            return letters.chars().nth(at).unwrap_or(c);
        }
    }
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{3000}' => ' ',
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        let known = ["build", "test", "deploy", "a", "train-gnn"];
        assert_eq!(nearest("biuld", known), Some("build"));
        assert_eq!(nearest("Build ", known), Some("build"));
        assert_eq!(nearest("train_gnn", known), Some("train-gnn"));
        assert_eq!(nearest("b", known), None);
        assert_eq!(nearest("launch", known), None);
    }

    #[test]
    fn names_that_look_alike_are_told_apart_by_code_points() {
        let cyrillic = "а";
        assert_eq!(nearest(cyrillic, ["b", "a"]), Some("a"));
        let told = difference(cyrillic, "a").unwrap();
        assert_eq!(told, "`а` U+0430, not `a` U+0061");
        assert_eq!(
            difference("bu\u{200b}ild", "build").unwrap(),
            "U+200B is in this name only"
        );
        assert_eq!(
            difference("build ", "build").unwrap(),
            "there is a blank around the name"
        );
        assert_eq!(difference("biuld", "build"), None);
        assert_eq!(difference("é1", "é2"), None);
    }

    #[test]
    fn each_look_alike_has_its_letter() {
        for c in "АВЕЅІЈКМНОРСТУХаеѕіјорсухԁһΑΒΕΖΗΙΚΜΝΟΡΤΥΧονι".chars()
        {
            assert!(latin(c).is_ascii_alphabetic(), "{c}");
        }
        assert_eq!(latin('ｂ'), 'b');
        assert_eq!(latin('–'), '-');
    }
}
