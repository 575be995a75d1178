//! The shape of a text, YAML or JSON alike: scalars as they are spelled, lists and mappings, each with its span.
//!
//! YAML gives types to bare words (`no`, `1.0`, `1e3`); here a scalar stays what was written and the reader of a field decides
//! what it means, so that the task `1.0` is not the task `1`.
//!
//! Invariants:
//! 1. Depth through aliases is at most [`DEPTH_MAX`], so recursion over a tree (its drop, too) is bounded.
//! 2. An alias shares the node of its anchor; what all aliases stand for is bounded by [`ALIAS_NODES_MAX`] and [`ALIAS_BYTES_MAX`].

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use super::limits::{ALIAS_BYTES_MAX, ALIAS_NODES_MAX, DEPTH_MAX, NODES_MAX};
use super::source::Span;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node<'s> {
    pub(super) span: Span,
    value: Value<'s>,
}

#[derive(Debug, Clone)]
enum Value<'s> {
    Scalar { text: Cow<'s, str>, plain: bool },
    Seq(Vec<Node<'s>>),
    Map(Vec<(Node<'s>, Node<'s>)>),
    Shared(Rc<Node<'s>>),
}

/// What a node is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'n, 's> {
    /// A bare word that means nothing: `null`, `~` or no text at all.
    Null(&'n str),
    /// A text; `plain` when it is written without quotes, so that it may be meant as a number.
    Scalar {
        text: &'n str,
        plain: bool,
    },
    Seq(&'n [Node<'s>]),
    Map(&'n [(Node<'s>, Node<'s>)]),
}

impl Kind<'_, '_> {
    /// What it is, for messages.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Null(_) => "null",
            Self::Scalar { .. } => "text",
            Self::Seq(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl<'s> Node<'s> {
    /// What it is, aliases followed.
    pub(super) fn kind(&self) -> Kind<'_, 's> {
        let mut node = self;
        loop {
            match &node.value {
                Value::Shared(shared) => node = shared,
                Value::Seq(items) => return Kind::Seq(items),
                Value::Map(pairs) => return Kind::Map(pairs),
                Value::Scalar { text, plain } => {
                    return match text.as_ref() {
                        null @ ("" | "~" | "null" | "Null" | "NULL") if *plain => Kind::Null(null),
                        text => Kind::Scalar {
                            text,
                            plain: *plain,
                        },
                    };
                }
            }
        }
    }
}

/// A problem after which reading cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) span: Span,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl Stop {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            help: None,
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Too many levels.
    pub(super) fn too_deep(span: Span) -> Self {
        let message = format!("lists and mappings are nested deeper than {DEPTH_MAX} levels");
        Self::new(span, message)
    }
}

/// Builds a tree from the events of a reader. Anchors are numbers above zero; zero is no anchor.
#[derive(Debug, Default)]
pub(super) struct Builder<'s> {
    stack: Vec<Frame<'s>>,
    root: Option<Node<'s>>,
    anchors: HashMap<usize, Anchor<'s>>,
    written: usize,
    /// All values and bytes so far, aliases counted in full.
    total: Weight,
    aliased: Weight,
}

#[derive(Debug)]
struct Frame<'s> {
    span: Span,
    items: Items<'s>,
    anchor: usize,
    before: Weight,
    height: usize,
}

#[derive(Debug)]
enum Items<'s> {
    Seq(Vec<Node<'s>>),
    Map(Vec<(Node<'s>, Node<'s>)>, Option<Node<'s>>),
}

#[derive(Debug)]
struct Anchor<'s> {
    node: Rc<Node<'s>>,
    weight: Weight,
    height: usize,
}

#[derive(Debug, Default, Clone, Copy)]
struct Weight {
    nodes: usize,
    bytes: usize,
}

impl Weight {
    const fn add(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
    }
}

impl<'s> Builder<'s> {
    /// Whether a list or mapping is open, and which.
    pub(super) fn open_is_map(&self) -> Option<bool> {
        self.stack
            .last()
            .map(|frame| matches!(frame.items, Items::Map(..)))
    }

    /// Where the innermost open list or mapping started.
    pub(super) fn open_span(&self) -> Option<Span> {
        self.stack.last().map(|frame| frame.span)
    }

    /// Adds a scalar.
    pub(super) fn scalar(
        &mut self,
        span: Span,
        text: Cow<'s, str>,
        plain: bool,
        anchor: usize,
    ) -> Result<(), Stop> {
        self.count(span)?;
        let weight = Weight {
            nodes: 1,
            bytes: text.len(),
        };
        self.total.add(weight);
        let node = Node {
            span,
            value: Value::Scalar { text, plain },
        };
        self.place(node, weight, 0, anchor);
        Ok(())
    }

    /// Opens a list or a mapping.
    pub(super) fn open(&mut self, span: Span, map: bool, anchor: usize) -> Result<(), Stop> {
        self.count(span)?;
        if self.stack.len() >= DEPTH_MAX {
            return Err(Stop::too_deep(span));
        }
        let items = if map {
            Items::Map(Vec::new(), None)
        } else {
            Items::Seq(Vec::new())
        };
        let before = self.total;
        self.total.add(Weight { nodes: 1, bytes: 0 });
        self.stack.push(Frame {
            span,
            items,
            anchor,
            before,
            height: 0,
        });
        Ok(())
    }

    /// Closes the innermost list or mapping at the byte `end`.
    pub(super) fn close(&mut self, end: u32) {
        let Some(frame) = self.stack.pop() else {
            return;
        };
        let weight = Weight {
            nodes: self.total.nodes - frame.before.nodes,
            bytes: self.total.bytes - frame.before.bytes,
        };
        let value = match frame.items {
            Items::Seq(mut items) => {
                items.shrink_to_fit();
                Value::Seq(items)
            }
            Items::Map(mut pairs, _) => {
                pairs.shrink_to_fit();
                Value::Map(pairs)
            }
        };
        let span = Span {
            start: frame.span.start,
            end: end.max(frame.span.end),
        };
        self.place(Node { span, value }, weight, frame.height + 1, frame.anchor);
    }

    /// Adds what the anchor stands for.
    pub(super) fn alias(&mut self, span: Span, anchor: usize) -> Result<(), Stop> {
        self.count(span)?;
        let Some(found) = self.anchors.get(&anchor) else {
            return Err(Stop::new(span, "an alias stands inside what it stands for"));
        };
        let (weight, height) = (found.weight, found.height);
        if self.stack.len() + height > DEPTH_MAX {
            return Err(Stop::too_deep(span));
        }
        self.aliased.add(weight);
        self.total.add(weight);
        if self.aliased.nodes > ALIAS_NODES_MAX {
            let message = format!("aliases stand for more than {ALIAS_NODES_MAX} values");
            return Err(Stop::new(span, message));
        }
        if self.aliased.bytes > ALIAS_BYTES_MAX {
            let message = format!("aliases stand for more than {ALIAS_BYTES_MAX} bytes of text");
            return Err(Stop::new(span, message));
        }
        let value = Value::Shared(Rc::clone(&found.node));
        self.place(Node { span, value }, weight, height, 0);
        Ok(())
    }

    /// The tree, once its root is complete.
    pub(super) fn finish(self) -> Option<Node<'s>> {
        self.root
    }

    fn count(&mut self, span: Span) -> Result<(), Stop> {
        self.written += 1;
        if self.written > NODES_MAX {
            let message = format!("the file holds more than {NODES_MAX} values");
            return Err(Stop::new(span, message));
        }
        Ok(())
    }

    fn place(&mut self, mut node: Node<'s>, weight: Weight, height: usize, anchor: usize) {
        if anchor > 0 {
            let span = node.span;
            let shared = Rc::new(node);
            let known = Anchor {
                node: Rc::clone(&shared),
                weight,
                height,
            };
            self.anchors.insert(anchor, known);
            node = Node {
                span,
                value: Value::Shared(shared),
            };
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.height = frame.height.max(height);
        match &mut frame.items {
            Items::Seq(items) => items.push(node),
            Items::Map(pairs, key) => match key.take() {
                None => *key = Some(node),
                Some(key) => pairs.push((key, node)),
            },
        }
    }
}
