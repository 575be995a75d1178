//! Judges one workflow after a run: its definition, the state that was stored and what its commands noted must tell one story.
//!
//! 1. It ends as its definition implies; a cancel that may have been served allows `cancelled` in its place, a retry after it does not.
//! 2. The execution that counts, and only one of its attempt, is the one that the state names; it began and ended.
//! 3. Each attempt was executed; a second execution of one has a blow that explains it.
//! 4. No task starts before those it waits for have ended.
//! 5. Two executions of one attempt overlap, and one begins after its workflow has ended, only where a process was paused.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::plan::{Blow, COORDINATORS};
use super::workload::{Does, Policy, Workload};

/// A pause or an outage explains what is strange for so long.
const EXPLAINS_US: i64 = 60_000_000;
/// What a worker starts that is told to go, or dies, may note that so much later.
const GOES_US: i64 = 5_000_000;
/// How many microseconds the clocks of a command and of its worker may differ: one reads the kernel's coarse clock.
const SLACK_US: i64 = 20_000;

/// What people have asked for, as far as they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Answers {
    /// A cancel may have been served, and no retry was after it.
    pub(super) is_cancelled: bool,
    /// Some request may have been served: attempts may be more than the definition implies, or fewer.
    pub(super) is_touched: bool,
}

/// One execution, as its command noted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Execution {
    pub(super) attempt: u64,
    pub(super) token: String,
    pub(super) start: i64,
    pub(super) end: Option<i64>,
}

/// What is known of one task.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// The last attempt issued.
    pub(super) attempt: u64,
    /// The execution that counts, and when its worker saw its end.
    pub(super) counted: Option<(String, i64)>,
    /// By rising start.
    pub(super) executions: Vec<Execution>,
}

/// All that is known of a workflow.
#[derive(Debug, Clone)]
pub(super) struct Story {
    pub(super) status: String,
    pub(super) letters: String,
    pub(super) generation: u64,
    /// When its state was written last.
    pub(super) written: i64,
    pub(super) tasks: Vec<Told>,
}

/// Reads the notes of a task.
///
/// # Errors
/// What the notes must not hold.
pub(super) fn executions(notes: &str) -> Result<Vec<Execution>, String> {
    let mut found: BTreeMap<&str, Execution> = BTreeMap::new();
    for line in notes.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [what, attempt, token, at] = words[..] else {
            return Err(format!("a note that is none: {line:?}"));
        };
        let number = |text: &str| text.parse().map_err(|error| format!("{error}: {line:?}"));
        let at = i64::try_from(number(at)?).unwrap();
        let known = found.get_mut(token);
        match (what, known) {
            ("start", None) => {
                let execution = Execution {
                    attempt: number(attempt)?,
                    token: token.to_owned(),
                    start: at,
                    end: None,
                };
                found.insert(token, execution);
            }
            ("end", Some(known)) if known.end.is_none() => known.end = Some(at),
            _ => return Err(format!("an execution that is doubled or torn: {line:?}")),
        }
    }
    let mut found: Vec<_> = found.into_values().collect();
    found.sort_by_key(|execution| execution.start);
    Ok(found)
}

fn microseconds(time: &Value) -> i64 {
    let time: Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_microsecond()
}

impl Story {
    /// Reads a state.
    pub(super) fn read(
        workload: &Workload,
        state: &Value,
        notes: impl Fn(&str) -> String,
    ) -> Result<Self, String> {
        let mut tasks = Vec::new();
        for task in &workload.tasks {
            let executions = executions(&notes(&task.name))
                .map_err(|error| format!("{} {}: {error}", workload.id, task.name))?;
            tasks.push(Told {
                executions,
                ..Told::default()
            });
        }
        for detail in state["tasks"].as_array().unwrap() {
            let place = usize::try_from(detail["place"].as_u64().unwrap()).unwrap();
            tasks[place].attempt = detail["attempt_no"].as_u64().unwrap_or_default();
            let report = &detail["report"];
            if let Some(token) = report["token"].as_str() {
                tasks[place].counted = Some((token.to_owned(), microseconds(&report["ended_at"])));
            }
        }
        Ok(Self {
            status: state["status"].as_str().unwrap().to_owned(),
            letters: state["states"].as_str().unwrap().to_owned(),
            generation: state["generation"].as_u64().unwrap(),
            written: microseconds(&state["updated_at"]),
            tasks,
        })
    }

    /// The execution that counts of the task at `place`, and its end.
    fn counted(&self, place: usize) -> Option<(&Execution, i64)> {
        let told = &self.tasks[place];
        let (token, seen) = told.counted.as_ref()?;
        let mut executions = told.executions.iter();
        let execution = executions.find(|execution| execution.token == *token)?;
        Some((execution, execution.end.unwrap_or(*seen)))
    }

    /// How many executions there were.
    pub(super) fn started(&self) -> usize {
        self.tasks.iter().map(|task| task.executions.len()).sum()
    }

    /// How many executions there were beyond one for each attempt.
    pub(super) fn doubled(&self) -> usize {
        let tasks = self.tasks.iter();
        tasks
            .flat_map(Told::attempts)
            .map(|(_, executions)| executions.len() - 1)
            .sum()
    }
}

impl Told {
    /// Executions by attempt.
    fn attempts(&self) -> BTreeMap<u64, Vec<&Execution>> {
        let mut attempts: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for execution in &self.executions {
            attempts
                .entry(execution.attempt)
                .or_default()
                .push(execution);
        }
        attempts
    }
}

/// All that is wrong with the story of a workflow; `blows` is what was done to the processes, and when.
pub(super) fn judge(
    workload: &Workload,
    answers: Answers,
    story: &Story,
    blows: &[(i64, Blow)],
) -> Vec<String> {
    let mut wrong = Vec::new();
    let implied = workload.letters();
    let fits = |place: usize, found: char, implied: char| {
        // After a cancel what fails is not tried again.
        let gives_up = matches!(workload.tasks[place].does, Does::FailBefore(_)) && found == 'f';
        found == implied || answers.is_cancelled && (found == 'x' || gives_up)
    };
    let letters = story.letters.chars().zip(implied.chars()).enumerate();
    let status = workload.status();
    let may_be = story.status == status || answers.is_cancelled && story.status == "cancelled";
    if !may_be
        || story.letters.len() != implied.len()
        || !letters
            .clone()
            .all(|(place, (found, implied))| fits(place, found, implied))
    {
        wrong.push(format!(
            "ended {} {}, and not {status} {implied}",
            story.status, story.letters
        ));
        return wrong;
    }
    for (place, (letter, _)) in letters {
        let mut task_wrong = judge_counted(workload, answers, story, place, letter);
        task_wrong.extend(judge_executions(&story.tasks[place], answers, blows));
        task_wrong.extend(judge_order(workload, answers, story, place));
        task_wrong.extend(judge_overlaps(&story.tasks[place], story.written, blows));
        let name = &workload.tasks[place].name;
        wrong.extend(task_wrong.iter().map(|what| format!("{name} {what}")));
    }
    wrong
}

fn judge_counted(
    workload: &Workload,
    answers: Answers,
    story: &Story,
    place: usize,
    letter: char,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let told = &story.tasks[place];
    let implied = workload.attempts(place, letter);
    if !answers.is_touched && told.attempt != implied {
        wrong.push(format!("has {} attempts, and not {implied}", told.attempt));
    }
    let most = (workload.tasks[place].retries + 1) * story.generation;
    if told.attempt > most {
        wrong.push(format!("has {} attempts, more than {most}", told.attempt));
    }
    if !"cf".contains(letter) {
        return wrong;
    }
    match story.counted(place) {
        None => wrong.push(format!(
            "ended by an execution that never began: {:?}",
            told.counted
        )),
        Some((execution, _)) => {
            if execution.attempt != told.attempt {
                wrong.push(format!("ended by another attempt: {execution:?}"));
            }
            let runs_out = workload.tasks[place].does == Does::TimeOut;
            if execution.end.is_none() != runs_out {
                wrong.push(format!("ended in the middle: {execution:?}"));
            }
        }
    }
    wrong
}

/// How long before an attempt began a blow may have come that executes it once more; none: no blow of that kind does.
const fn reach(blow: Blow) -> Option<i64> {
    match blow {
        Blow::Resume(_) => None,
        // What becomes of a coordinator executes nothing again.
        Blow::Kill(seat) | Blow::Terminate(seat) | Blow::Pause(seat, _) if seat < COORDINATORS => {
            None
        }
        Blow::Kill(_) | Blow::Terminate(_) => Some(GOES_US),
        Blow::Pause(..) | Blow::Outage(_) => Some(EXPLAINS_US),
    }
}

fn judge_executions(told: &Told, answers: Answers, blows: &[(i64, Blow)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let attempts = told.attempts();
    for attempt in 1..=told.attempt {
        if !answers.is_touched && !attempts.contains_key(&attempt) {
            wrong.push(format!("never executed its attempt {attempt}"));
        }
    }
    for (attempt, executions) in attempts {
        if attempt == 0 || attempt > told.attempt {
            wrong.push(format!("executed attempt {attempt}, which nobody issued"));
        }
        let (first, last) = (executions[0].start, executions[executions.len() - 1].start);
        let explains =
            |at: i64, blow| reach(blow).is_some_and(|us| (first - us..=last).contains(&at));
        let explained = blows.iter().filter(|(at, blow)| explains(*at, *blow));
        let explained = explained.count();
        if executions.len() > 1 + explained {
            wrong.push(format!(
                "executed attempt {attempt} {} times with {explained} blows: {executions:?}",
                executions.len()
            ));
        }
    }
    wrong
}

fn judge_overlaps(told: &Told, written: i64, blows: &[(i64, Blow)]) -> Vec<String> {
    let was_paused = |until: i64| {
        let mut blows = blows.iter();
        blows.any(|(at, blow)| {
            matches!(blow, Blow::Pause(..)) && (until - EXPLAINS_US..=until).contains(at)
        })
    };
    let mut wrong = Vec::new();
    for executions in told.attempts().values() {
        for pair in executions.windows(2) {
            let overlap = pair[0]
                .end
                .is_some_and(|end| end > pair[1].start + SLACK_US);
            if overlap && !was_paused(pair[1].start) {
                wrong.push(format!("ran twice at once: {pair:?}"));
            }
        }
    }
    let late = told
        .executions
        .iter()
        .filter(|execution| execution.start > written + SLACK_US);
    let late = late.filter(|execution| !was_paused(execution.start));
    wrong.extend(
        late.map(|execution| format!("began after the end of its workflow: {execution:?}")),
    );
    wrong
}

fn judge_order(
    workload: &Workload,
    answers: Answers,
    story: &Story,
    place: usize,
) -> Option<String> {
    let task = &workload.tasks[place];
    let begun = story.tasks[place].executions.first()?.start;
    let end = |parent: usize| {
        if answers.is_touched {
            // After a retry it may have run again, below a child that keeps its result.
            let executions = story.tasks[parent].executions.iter();
            executions.filter_map(|execution| execution.end).min()
        } else {
            story.counted(parent).map(|(_, end)| end)
        }
    };
    let ends = task.parents.iter().filter_map(|parent| end(*parent));
    let waited_for = if task.policy == Policy::Any {
        // A parent that is skipped satisfies, too, and leaves no time.
        let letters: Vec<_> = story.letters.chars().collect();
        if task.parents.iter().any(|parent| letters[*parent] == 's') {
            return None;
        }
        ends.min()
    } else {
        ends.max()
    };
    let waited_for = waited_for.filter(|end| begun + SLACK_US < *end)?;
    Some(format!(
        "began {} us before what it waits for had ended",
        waited_for - begun
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::workload::{Asks, Does, Task};
    use super::*;

    type Lie = fn(&mut Story);

    fn workload() -> Workload {
        let mut second = Task::new("b", Does::FailBefore(2), Policy::All, &[0]);
        second.retries = 1;
        Workload {
            id: "w".to_owned(),
            at: Duration::ZERO,
            asks: Asks::Nothing,
            tasks: vec![
                Task::new("a", Does::Succeed, Policy::All, &[]),
                second,
                Task::new("c", Does::Fail, Policy::Always, &[1]),
                Task::new("d", Does::Succeed, Policy::OnFailure, &[0, 1]),
            ],
        }
    }

    fn told(notes: &str, counted: &str) -> Told {
        let executions = executions(notes).unwrap();
        let attempt = executions.last().map_or(0, |last| last.attempt);
        Told {
            attempt,
            counted: Some((counted.to_owned(), 0)),
            executions,
        }
    }

    fn story() -> Story {
        let second = "start 1 t2 2000000\nend 1 t2 2100000\nstart 2 t3 3000000\nend 2 t3 3100000";
        Story {
            status: "failed".to_owned(),
            letters: "ccfs".to_owned(),
            generation: 1,
            written: 5_000_000,
            tasks: vec![
                told("start 1 t1 1000000\nend 1 t1 1100000", "t1"),
                told(second, "t3"),
                told("start 1 t4 4000000\nend 1 t4 4100000", "t4"),
                Told::default(),
            ],
        }
    }

    fn wrong(change: impl FnOnce(&mut Story)) -> Vec<String> {
        let mut story = story();
        change(&mut story);
        judge(&workload(), Answers::default(), &story, &[])
    }

    #[test]
    fn a_true_story_passes() {
        assert_eq!(wrong(|_| ()), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_lie_is_found() {
        let lies: [(&str, Lie); 12] = [
            ("ended completed", |story| {
                story.status = "completed".to_owned();
            }),
            ("and not failed ccfs", |story| {
                story.letters = "cxfs".to_owned();
            }),
            ("b has 3 attempts, and not 2", |story| {
                story.tasks[1].attempt = 3;
            }),
            ("b has 3 attempts, more than 2", |story| {
                story.tasks[1].attempt = 3;
            }),
            ("b never executed its attempt 1", |story| {
                story.tasks[1].executions.remove(0);
            }),
            ("a ended by an execution that never began", |story| {
                story.tasks[0].counted = Some(("t9".to_owned(), 0));
            }),
            ("b ended by another attempt", |story| {
                story.tasks[1].counted = Some(("t2".to_owned(), 0));
            }),
            ("a ended in the middle", |story| {
                story.tasks[0].executions[0].end = None;
            }),
            ("a executed attempt 1 2 times with 0 blows", |story| {
                let again = Execution {
                    token: "t9".to_owned(),
                    ..story.tasks[0].executions[0].clone()
                };
                story.tasks[0].executions.push(again);
            }),
            ("a ran twice at once", |story| {
                let again = Execution {
                    token: "t9".to_owned(),
                    start: 1_050_000,
                    ..story.tasks[0].executions[0].clone()
                };
                story.tasks[0].executions.push(again);
            }),
            ("c began after the end of its workflow", |story| {
                story.written = 3_900_000;
            }),
            ("b began 950000 us before", |story| {
                story.tasks[0].executions[0].end = Some(2_950_000);
            }),
        ];
        for (named, lie) in lies {
            let wrong = wrong(lie);
            assert!(
                wrong.iter().any(|text| text.contains(named)),
                "{named}: {wrong:?}"
            );
        }
    }

    #[test]
    fn a_blow_explains_one_more_execution() {
        let mut story = story();
        let again = Execution {
            token: "t9".to_owned(),
            start: 1_500_000,
            ..story.tasks[0].executions[0].clone()
        };
        story.tasks[0].executions.push(again);
        let judged = |at, blow| judge(&workload(), Answers::default(), &story, &[(at, blow)]);
        let (kill, pause) = (Blow::Kill(COORDINATORS), Blow::Pause(COORDINATORS, false));
        for blow in [kill, pause, Blow::Outage(Duration::ZERO)] {
            assert_eq!(judged(1_200_000, blow), Vec::<String>::new());
            assert!(!judged(1_600_000, blow).is_empty());
        }
        assert!(judged(-20_000_000, pause).is_empty());
        assert!(!judged(-20_000_000, kill).is_empty());
        assert!(!judged(1_200_000, Blow::Kill(COORDINATORS - 1)).is_empty());
        assert!(!judged(1_200_000, Blow::Resume(COORDINATORS)).is_empty());
    }

    #[test]
    fn a_note_that_is_doubled_or_torn_is_found() {
        for notes in [
            "start 1 t1 1\nstart 1 t1 1",
            "end 1 t1 1",
            "start 1 t1 1\nend 1 t1 2\nend 1 t1 2",
            "start 1 t1",
        ] {
            assert!(executions(notes).is_err(), "{notes}");
        }
    }

    #[test]
    fn a_cancel_allows_cancelled_until_a_retry_was_applied() {
        let mut story = story();
        story.status = "cancelled".to_owned();
        story.letters = "cfxx".to_owned();
        let judged = |is_cancelled| {
            let answers = Answers {
                is_cancelled,
                is_touched: true,
            };
            judge(&workload(), answers, &story, &[])
        };
        assert_eq!(judged(true), Vec::<String>::new());
        assert!(!judged(false).is_empty());
    }
}
