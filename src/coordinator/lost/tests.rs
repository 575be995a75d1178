//! What counts as lost, and what does not.

use super::*;

const THRESHOLD: Duration = Duration::from_secs(300);

fn at(secs: u64) -> Mono {
    Mono::new(Duration::from_secs(secs))
}

fn out(task: &str) -> Out {
    Out {
        id: WorkflowId::new("w").expect("legal"),
        task: task.parse().expect("legal"),
        attempt: Attempt::new(1),
    }
}

/// What is out on one queue, looked at as often as the search does.
struct Scene {
    sendings: Sendings,
    queue: QueueName,
}

impl Scene {
    fn new() -> Self {
        Self {
            sendings: Sendings::default(),
            queue: QueueName::new("default").expect("legal"),
        }
    }

    fn sent(&self, task: &str, secs: u64) {
        self.sendings
            .sent(&self.queue, &out(task), at(secs), at(secs));
    }

    fn ended(&self, task: &str, was_taken: bool) {
        self.sendings.ended(&self.queue, &out(task), was_taken);
    }

    /// One look; tells the names of what is lost.
    fn look(&self, secs: u64, depth: u64, claimed: &[&str]) -> Vec<String> {
        let held = claimed.iter().map(|task| (out(task).task, Attempt::new(1)));
        let claims = Claims::from([(out("x").id, held.collect())]);
        let lost = self
            .sendings
            .judge(&self.queue, depth, &claims, THRESHOLD, at(secs));
        lost.into_iter().map(|out| out.task.to_string()).collect()
    }

    /// When the first of many looks finds something lost.
    fn first_loss(&self, from: u64, depth: u64, claimed: &[&str]) -> Option<u64> {
        let mut looks = (from..from + 4000).step_by(60);
        looks.find(|secs| !self.look(*secs, depth, claimed).is_empty())
    }
}

#[test]
fn a_message_is_gone_when_nothing_waits_and_nobody_has_it_for_a_whole_threshold() {
    let scene = Scene::new();
    scene.sent("a", 0);
    assert_eq!(scene.first_loss(0, 0, &[]), Some(600));
    assert_eq!(scene.look(660, 0, &[]), ["a"], "until it is sent again");
}

#[test]
fn a_message_that_waits_in_line_or_is_claimed_is_not_gone() {
    let scene = Scene::new();
    scene.sent("a", 0);
    scene.sent("b", 100);
    assert_eq!(scene.first_loss(0, 2, &[]), None, "both wait");
    assert_eq!(scene.first_loss(4000, 2, &["a"]), None, "one waits");
    assert_eq!(scene.first_loss(8000, 2, &["a", "b"]), None, "none waits");
}

#[test]
fn one_look_that_shows_the_message_begins_the_wait_anew() {
    let scene = Scene::new();
    scene.sent("a", 0);
    for secs in [300, 360, 420, 480, 540] {
        assert!(scene.look(secs, 0, &[]).is_empty());
    }
    assert!(scene.look(599, 1, &[]).is_empty(), "it is there");
    assert_eq!(scene.first_loss(600, 0, &[]), Some(900));
    assert!(scene.look(960, 1, &["a"]).is_empty(), "claimed");
    assert_eq!(scene.first_loss(960, 0, &[]), Some(960 + 600));
}

#[test]
fn a_message_is_gone_when_what_was_sent_later_is_claimed_or_has_ended() {
    for is_claimed in [true, false] {
        let scene = Scene::new();
        scene.sent("first", 0);
        scene.sent("near", 4);
        scene.sent("later", 5);
        scene.sent("last", 200);
        let claimed: &[&str] = if is_claimed { &["later"] } else { &[] };
        if !is_claimed {
            scene.ended("later", true);
        }
        // Far more wait than are claimed.
        assert_eq!(scene.first_loss(300, 50, claimed), Some(600));
        assert_eq!(scene.look(660, 50, claimed), ["first"]);
    }
}

#[test]
fn what_ended_without_a_worker_tells_nothing_of_the_queue() {
    let scene = Scene::new();
    scene.sent("a", 0);
    scene.sent("b", 100);
    scene.ended("b", false);
    assert_eq!(scene.first_loss(0, 1, &[]), None);
}

#[test]
fn what_is_inherited_counts_from_the_take_over_and_was_sent_before_all_else() {
    let scene = Scene::new();
    scene.sent("own", 50);
    for task in ["x", "y"] {
        scene.sendings.adopt(&scene.queue, &out(task), at(1000));
    }
    scene.ended("x", true);
    assert_eq!(
        scene.first_loss(1000, 9, &[]),
        None,
        "no order among what is inherited"
    );
    scene.ended("own", true);
    let scene_began = 6000;
    assert_eq!(
        scene.first_loss(scene_began, 9, &[]),
        Some(scene_began + 300)
    );
}

#[test]
fn a_workflow_that_is_loaded_anew_is_looked_for_anew_and_keeps_its_place() {
    let scene = Scene::new();
    scene.sent("a", 0);
    scene.sent("b", 100);
    scene.ended("b", true);
    assert!(scene.look(300, 1, &[]).is_empty());
    scene.sendings.adopt(&scene.queue, &out("a"), at(500));
    assert_eq!(scene.first_loss(500, 1, &[]), Some(500 + 600));
}

#[test]
fn each_new_sending_doubles_the_wait_and_another_attempt_begins_anew() {
    let scene = Scene::new();
    scene.sent("a", 0);
    assert_eq!(scene.first_loss(0, 0, &[]), Some(600));
    scene.sendings.sent_again(&[out("a")], at(600));
    scene.sent("a", 600);
    assert_eq!(scene.first_loss(600, 0, &[]), Some(600 + 300 + 600));
    scene.sendings.sent_again(&[out("a")], at(1500));
    assert_eq!(scene.first_loss(1500, 0, &[]), Some(1500 + 300 + 1200));
    let next = Out {
        attempt: Attempt::new(2),
        ..out("a")
    };
    scene.sendings.sent(&scene.queue, &next, at(3000), at(3000));
    assert_eq!(scene.first_loss(3000, 0, &[]), Some(3600));
}

#[test]
fn nothing_is_asked_while_no_task_is_older_than_the_threshold() {
    let scene = Scene::new();
    scene.sent("a", 0);
    scene.sent("b", 200);
    let quiet = |secs| scene.sendings.quiet(THRESHOLD, at(secs));
    assert_eq!(quiet(299), []);
    let found = quiet(300);
    assert_eq!(
        (found.len(), found[0].out, found[0].is_passed),
        (1, 2, false)
    );
    scene.ended("a", true);
    scene.ended("b", true);
    assert_eq!(quiet(9000), []);
}
