//! Random small workflows, and how each attempt of their tasks ends: a function of the seed, the task and the attempt.

use std::collections::BTreeMap;
use std::time::Duration;

use super::dice::{Dice, mix};
use crate::definition::{
    Command, Definition, DepPolicy, OnFailure, QueueName, ResultPolicy, Task, TaskName, WorkflowId,
};

/// Most tasks of one workflow.
const TASKS_MAX: u64 = 8;

/// A task queue and an idempotency key.
pub(super) type Slot = (QueueName, String);

/// How an attempt ends if nothing from outside ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Well, with an output of so many bytes.
    Succeeds {
        /// Bytes of JSON.
        output: usize,
    },
    /// With an exit code.
    Fails,
    /// By a signal from outside.
    IsKilled,
    /// It runs into its time limit.
    TimesOut,
    /// Its command cannot be started.
    CannotStart,
    /// Well, but what it left as its output is not JSON.
    WritesNonsense,
}

/// One workflow of a run.
#[derive(Debug, Clone)]
pub(super) struct Workload {
    pub(super) id: WorkflowId,
    pub(super) definition: Definition,
    seed: u64,
    hostile: bool,
    /// Tasks all of whose attempts are told: how they end and how long they take.
    told: BTreeMap<TaskName, (Ending, Duration)>,
}

/// The task queues of every run.
pub(super) fn queues() -> [QueueName; 2] {
    ["default", "big"].map(|name| QueueName::new(name).expect("a legal name"))
}

impl Workload {
    pub(super) fn draw(number: u32, hostile: bool, dice: &mut Dice) -> Self {
        let count = 1 + dice.below(TASKS_MAX);
        let mut tasks: Vec<Task> = Vec::new();
        for place in 0..count {
            let task = task(place, &tasks, dice);
            tasks.push(task);
        }
        let [default_queue, _] = queues();
        let seed = dice.next();
        for (task, salt) in tasks.iter_mut().zip(1..) {
            // A few share a key, within their workflow and with those of others.
            let number = mix(seed ^ mix(salt));
            task.idempotency_key = number
                .is_multiple_of(6)
                .then(|| format!("k{}", number / 6 % 2));
        }
        Self {
            id: WorkflowId::new(format!("w{number}")).expect("a legal id"),
            definition: Definition {
                name: None,
                description: None,
                default_queue,
                max_parallelism: dice.chance(300).then_some(1 + number % 2),
                result_policy: dice
                    .pick(&[ResultPolicy::AllSinksSucceed, ResultPolicy::AllTasksSucceed]),
                on_failure: dice.pick(&[OnFailure::Continue, OnFailure::Cancel]),
                env: BTreeMap::new(),
                tasks,
            },
            seed,
            hostile,
            told: BTreeMap::new(),
        }
    }

    /// A workflow of a scenario, whose attempts end as told.
    #[cfg(test)]
    pub(super) fn told(yaml: &str, told: &[(&str, Ending, Duration)]) -> Self {
        use crate::definition::{Source, parse};
        let parsed = parse(&Source::new("scenario.yaml", yaml)).expect("a legal definition");
        let name = |name: &str| TaskName::new(name).expect("a legal name");
        let told = told
            .iter()
            .map(|(task, ending, takes)| (name(task), (*ending, *takes)));
        Self {
            id: WorkflowId::new("w").expect("a legal id"),
            definition: parsed.definition,
            seed: 0,
            hostile: false,
            told: told.collect(),
        }
    }

    /// Whether a task runs also when a failure stops its workflow.
    pub(super) fn survives_stop(&self, task: &TaskName) -> bool {
        let mut tasks = self.definition.tasks.iter();
        tasks.any(|found| found.name == *task && found.dep_policy.waits_for_any_end())
    }

    /// Where a success of the task stands for others: its queue and its key.
    pub(super) fn slot(&self, task: &TaskName) -> Option<Slot> {
        let mut tasks = self.definition.tasks.iter();
        let task = tasks.find(|found| found.name == *task)?;
        let queue = task.queue.as_ref();
        let queue = queue.unwrap_or(&self.definition.default_queue);
        Some((queue.clone(), task.idempotency_key.clone()?))
    }

    /// Whether the worker's machine has no room for this execution.
    pub(super) fn has_no_room(&self, token: &str) -> bool {
        let number = token
            .bytes()
            .fold(0, |hash, byte| mix(hash ^ u64::from(byte)));
        self.hostile && number.is_multiple_of(12)
    }

    fn number(&self, task: &TaskName, attempt: u32, salt: u64) -> u64 {
        let name = task.as_str().bytes().fold(self.seed, |hash, byte| {
            mix(hash ^ u64::from(byte)).wrapping_add(1)
        });
        mix(name ^ mix(u64::from(attempt) << 8 | salt))
    }

    /// How an attempt ends.
    pub(super) fn ending(&self, task: &TaskName, attempt: u32) -> Ending {
        if let Some((ending, _)) = self.told.get(task) {
            return *ending;
        }
        let number = self.number(task, attempt, 1);
        match number % 100 {
            // Who uses the success of another must end as that one.
            0..40 if self.slot(task).is_some() => Ending::Succeeds { output: 20 },
            0..15 => Ending::Fails,
            15..20 => Ending::IsKilled,
            20..25 => Ending::TimesOut,
            25..30 => Ending::CannotStart,
            30..40 if self.hostile => Ending::WritesNonsense,
            _ => Ending::Succeeds {
                output: [0, 0, 20, 400, 9000][usize::try_from(number / 100 % 5).expect("below 5")],
            },
        }
    }

    /// How long an attempt takes.
    pub(super) fn takes(&self, task: &TaskName, attempt: u32) -> Duration {
        if let Some((_, takes)) = self.told.get(task) {
            return *takes;
        }
        let number = self.number(task, attempt, 2);
        let millis = match number % 10 {
            0..5 => number % 900,
            5..8 => number % 15_000,
            _ => number % 120_000,
        };
        Duration::from_millis(1 + millis)
    }

    /// Whether an attempt takes no notice of the request to end.
    pub(super) fn is_stubborn(&self, task: &TaskName, attempt: u32) -> bool {
        self.told.is_empty() && self.number(task, attempt, 3).is_multiple_of(4)
    }
}

fn task(place: u64, before: &[Task], dice: &mut Dice) -> Task {
    let mut depends_on = Vec::new();
    for other in before {
        if dice.chance(350) {
            depends_on.push(other.name.clone());
        }
    }
    let parents = depends_on.len() as u64;
    let dep_policy = match dice.below(9) {
        0 => DepPolicy::Any,
        1 => DepPolicy::AllSettled,
        2 => DepPolicy::Always,
        3 => DepPolicy::OnFailure,
        4 if parents > 0 => {
            let least = 1 + dice.below(parents);
            DepPolicy::AtLeast(u32::try_from(least).expect("few parents"))
        }
        _ => DepPolicy::All,
    };
    let [_, big] = queues();
    Task {
        name: TaskName::new(format!("t{place}")).expect("a legal name"),
        cmd: Command::Shell("simulated".to_owned()),
        env: BTreeMap::new(),
        cwd: None,
        depends_on,
        queue: dice.chance(250).then_some(big),
        dep_policy,
        num_retries: u32::try_from(dice.below(3)).expect("below 3"),
        timeout_s: None,
        idempotency_key: None,
    }
}
