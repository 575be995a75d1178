//! Coordinator, workers and command line as separate processes against one emulator, each stack with a prefix of its own.

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use dagaz::definition::WorkflowId;
use dagaz::env::real;
use dagaz::protocol::{Layout, read_runtime};
use dagaz::store::azure::{AzureConfig, AzureStore};
use serde_json::Value;
use tempfile::TempDir;

use super::azurite::{Azurite, Endpoints, account_signature, azurite};
use super::process::{Process, command};
use super::proxy::Proxy;

/// How long a test waits for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The processes of one prefix.
#[derive(Debug)]
pub(crate) struct Stack {
    pub(crate) prefix: String,
    pub(crate) folder: TempDir,
    connection: String,
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ran {
    /// The JSON on stdout.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

impl Stack {
    /// A stack on the emulator that all tests share.
    pub(crate) fn new(prefix: &str) -> Self {
        Self::on(azurite(), prefix)
    }

    /// A stack on an emulator of its own.
    pub(crate) fn on(azurite: &Azurite, prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            folder: TempDir::new().unwrap(),
            connection: azurite.connection_string(),
        }
    }

    fn envs<'a>(&'a self, connection: &'a str) -> [(&'a str, &'a str); 2] {
        [
            ("WORKFLOW_STORE", self.prefix.as_str()),
            ("AZURE_STORAGE_CONNECTION_STRING", connection),
        ]
    }

    /// A command that runs in the folder of the stack and knows its store.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_on(args, &self.connection)
    }

    fn command_on(&self, args: &[&str], connection: &str) -> Command {
        let mut command = command(args);
        let envs = self.envs(connection);
        command.envs(envs).current_dir(self.folder.path());
        command
    }

    /// Gives `command` what its processes are given.
    pub(crate) fn surround<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let envs = self.envs(&self.connection);
        command.envs(envs).current_dir(self.folder.path())
    }

    /// Starts a service.
    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::spawn(&mut self.command(args))
    }

    /// Starts a service that talks through `proxy`.
    pub(crate) fn start_via(&self, proxy: &Proxy, args: &[&str]) -> Process {
        Process::spawn(&mut self.command_on(args, &proxy.connection_string()))
    }

    /// Starts a coordinator and waits until it leads.
    pub(crate) fn coordinator(&self, args: &[&str]) -> Process {
        let process = self.start(&[&["coordinator"], args].concat());
        process.wait_for(PATIENCE, |line| line.contains("leading"));
        process
    }

    /// Starts a worker.
    pub(crate) fn worker(&self, args: &[&str]) -> Process {
        self.start(&[&["worker"], args].concat())
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        let output = self.command(args).output();
        output.unwrap().into()
    }

    /// Runs a command that talks through `proxy` to its end.
    pub(crate) fn run_via(&self, proxy: &Proxy, args: &[&str]) -> Ran {
        let output = self.command_on(args, &proxy.connection_string()).output();
        output.unwrap().into()
    }

    /// Writes a definition and submits it under `id`.
    pub(crate) fn submit(&self, id: &str, yaml: &str) {
        let file = self.folder.path().join(format!("{id}.yaml"));
        std::fs::write(&file, yaml).unwrap();
        let ran = self.run(&["submit", "--id", id, file.to_str().unwrap()]);
        assert_eq!((ran.code, ran.stdout.trim()), (Some(0), id), "{ran:?}");
    }

    /// The JSON of `status`.
    pub(crate) fn status(&self, id: &str) -> Value {
        let ran = self.run(&["status", id, "--output", "json"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.json()
    }

    /// Follows a workflow to its end and returns the exit code.
    pub(crate) fn watch(&self, id: &str) -> Option<i32> {
        let limit = PATIENCE.as_secs().to_string();
        self.run(&["watch", id, "--timeout-s", &limit]).code
    }

    /// A file in the folder that the processes run in.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The lines of a file that tasks have written; none while it is not there.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(Path::new(&self.path(name))).unwrap_or_default();
        text.lines().map(ToOwned::to_owned).collect()
    }
}

/// The time at which something is seen of other processes.
#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do takes real time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Looks until there is something to see.
#[expect(
    clippy::disallowed_methods,
    reason = "what other processes do is looked for in real time"
)]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The state of a workflow with what is kept beside it, by the product's own reader: in the form that has all of it in one blob.
pub(crate) fn whole_state(azurite: &Azurite, prefix: &str, id: &str) -> Value {
    let connection = azurite.connection_string();
    let (config, _) = AzureConfig::resolve(prefix, Some(&connection)).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let found = runtime.block_on(async {
        let store = AzureStore::open(&config, real::env()).unwrap();
        let (layout, id) = (Layout::new(prefix).unwrap(), WorkflowId::new(id).unwrap());
        read_runtime(&store, &layout, &id).await
    });
    serde_json::to_value(found.unwrap().unwrap().record).unwrap()
}

/// Reads the emulator, and takes messages from it, by plain signed HTTP, as a tool that knows nothing of this product would.
#[derive(Debug)]
pub(crate) struct Foreign {
    endpoints: Endpoints,
    signature: String,
    runtime: tokio::runtime::Runtime,
}

impl Foreign {
    /// A reader of the emulator that all tests share.
    pub(crate) fn new() -> Self {
        Self::of(azurite())
    }

    /// A reader of `azurite`.
    pub(crate) fn of(azurite: &Azurite) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self {
            endpoints: azurite.endpoints.clone(),
            signature: account_signature("2099-01-01T00:00:00Z"),
            runtime,
        }
    }

    fn get(&self, url: &str) -> reqwest::Response {
        self.request(reqwest::Method::GET, url)
    }

    fn request(&self, method: reqwest::Method, url: &str) -> reqwest::Response {
        let mark = if url.contains('?') { '&' } else { '?' };
        let request = reqwest::Client::new()
            .request(method, format!("{url}{mark}{}", self.signature))
            .header("x-ms-version", "2021-08-06")
            .header("Accept", "application/json;odata=nometadata");
        let response = self.runtime.block_on(request.send()).unwrap();
        assert!(
            response.status().is_success(),
            "{url}: {}",
            response.status()
        );
        response
    }

    fn json(&self, url: &str) -> Value {
        let response = self.get(url);
        let bytes = self.runtime.block_on(response.bytes()).unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    /// A blob that holds JSON.
    pub(crate) fn blob(&self, container: &str, name: &str) -> Value {
        self.json(&format!(
            "{}/{container}/{name}",
            self.endpoints.blob.trim_end_matches('/')
        ))
    }

    /// Breaks the lease on a blob, which must be held.
    pub(crate) fn break_lease(&self, container: &str, name: &str) {
        let request = self
            .on_blob(
                reqwest::Method::PUT,
                container,
                &format!("{name}?comp=lease"),
            )
            .header("x-ms-lease-action", "break")
            .header("x-ms-lease-break-period", "0");
        let status = self.runtime.block_on(request.send()).unwrap().status();
        assert!(status.is_success(), "{status}");
    }

    /// Leaves nothing of what a blob holds.
    pub(crate) fn empty_blob(&self, container: &str, name: &str) {
        let request = self
            .on_blob(reqwest::Method::PUT, container, name)
            .header("x-ms-blob-type", "BlockBlob")
            .header("Content-Length", "0");
        let status = self.runtime.block_on(request.send()).unwrap().status();
        assert!(status.is_success(), "{status}");
    }

    /// Deletes a blob; false while a lease on it keeps it.
    pub(crate) fn delete_blob(&self, container: &str, name: &str) -> bool {
        let request = self.on_blob(reqwest::Method::DELETE, container, name);
        let status = self.runtime.block_on(request.send()).unwrap().status();
        assert!(status.is_success() || status == 412, "{status}");
        status.is_success()
    }

    fn on_blob(
        &self,
        method: reqwest::Method,
        container: &str,
        name: &str,
    ) -> reqwest::RequestBuilder {
        let base = azurite().endpoints.blob.trim_end_matches('/');
        let mark = if name.contains('?') { '&' } else { '?' };
        let url = format!("{base}/{container}/{name}{mark}{}", self.signature);
        let client = reqwest::Client::new();
        client
            .request(method, url)
            .header("x-ms-version", "2021-08-06")
    }

    /// All rows of a table.
    pub(crate) fn rows(&self, table: &str) -> Vec<Value> {
        let base = self.endpoints.table.trim_end_matches('/').to_owned();
        let page = self.json(&format!("{base}/{table}()"));
        page["value"].as_array().unwrap().clone()
    }

    /// How many messages a queue holds.
    pub(crate) fn depth(&self, queue: &str) -> u64 {
        let base = self.endpoints.queue.trim_end_matches('/').to_owned();
        let response = self.get(&format!("{base}/{queue}?comp=metadata"));
        let count = response.headers()["x-ms-approximate-messages-count"].clone();
        count.to_str().unwrap().parse().unwrap()
    }

    /// Removes all messages of a queue.
    pub(crate) fn clear(&self, queue: &str) {
        let base = azurite().endpoints.queue.trim_end_matches('/').to_owned();
        let url = format!("{base}/{queue}/messages");
        self.request(reqwest::Method::DELETE, &url);
    }

    /// Removes the first message of a queue.
    pub(crate) fn delete_first(&self, queue: &str) {
        let base = azurite().endpoints.queue.trim_end_matches('/').to_owned();
        let url = format!("{base}/{queue}/messages");
        let response = self.get(&format!("{url}?numofmessages=1&visibilitytimeout=600"));
        let xml = self.runtime.block_on(response.text()).unwrap();
        let field = |name: &str| {
            let (_, rest) = xml.split_once(&format!("<{name}>")).unwrap();
            rest.split_once('<').unwrap().0.to_owned()
        };
        let receipt = field("PopReceipt");
        let receipt: String = url::form_urlencoded::byte_serialize(receipt.as_bytes()).collect();
        let message = format!("{url}/{}?popreceipt={receipt}", field("MessageId"));
        self.request(reqwest::Method::DELETE, &message);
    }
}
