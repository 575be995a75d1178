//! The pinned emulator for tests: one for the whole test process, or one of a test's own that can be stopped and started again.
//!
//! The emulator ends with the test process, however that ends: it holds the other end of a pipe. What it stored goes with it.
//! Needs Node 20 or newer, and says so where there is none; installs the emulator on first use.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The emulator's well-known account.
pub(crate) const ACCOUNT: &str = "devstoreaccount1";
/// Its well-known key.
pub(crate) const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Base addresses of the three services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoints {
    pub(crate) blob: String,
    pub(crate) queue: String,
    pub(crate) table: String,
}

/// A running emulator.
#[derive(Debug)]
pub(crate) struct Azurite {
    pub(crate) endpoints: Endpoints,
    folder: PathBuf,
    ports: [u16; 3],
    running: Option<(Child, ChildStdin)>,
    _own: Option<TempDir>,
}

/// The emulator that the tests of this process share, started by the first that asks. Names must be a test's own.
pub(crate) fn azurite() -> &'static Azurite {
    static SHARED: OnceLock<Azurite> = OnceLock::new();
    SHARED.get_or_init(|| {
        install();
        // Nothing drops a static: the emulator itself removes its folder at the end.
        let folder = TempDir::with_prefix("azurite-").unwrap().keep();
        Azurite::launch(folder, [0; 3], None, true)
    })
}

impl Azurite {
    /// An emulator of a test's own.
    pub(crate) fn start() -> Self {
        install();
        let own = TempDir::with_prefix("azurite-").unwrap();
        Self::launch(own.path().to_owned(), [0; 3], Some(own), false)
    }

    /// What `AZURE_STORAGE_CONNECTION_STRING` must hold to reach it.
    pub(crate) fn connection_string(&self) -> String {
        connection_string(&self.endpoints)
    }

    /// Stops it in good order: all is stored, its ports refuse connections.
    pub(crate) fn stop(&mut self) {
        if let Some((mut child, stdin)) = self.running.take() {
            drop(stdin);
            child.wait().unwrap();
        }
    }

    /// Stops it if it runs, and starts it with the same data on the same ports.
    pub(crate) fn restart(&mut self) {
        self.stop();
        let (ports, running) = spawn(&self.folder, self.ports, false);
        assert_eq!(ports, self.ports);
        self.running = Some(running);
    }

    fn launch(folder: PathBuf, ports: [u16; 3], own: Option<TempDir>, ephemeral: bool) -> Self {
        let (ports, running) = spawn(&folder, ports, ephemeral);
        let [blob, queue, table] = ports.map(|port| format!("http://127.0.0.1:{port}/{ACCOUNT}"));
        Self {
            endpoints: Endpoints { blob, queue, table },
            folder,
            ports,
            running: Some(running),
            _own: own,
        }
    }
}

/// The connection string of an account at `endpoints`.
pub(crate) fn connection_string(endpoints: &Endpoints) -> String {
    let Endpoints { blob, queue, table } = endpoints;
    format!(
        "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={blob};QueueEndpoint={queue};TableEndpoint={table};"
    )
}

impl Drop for Azurite {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts the emulator and waits for its one line.
fn spawn(folder: &Path, ports: [u16; 3], ephemeral: bool) -> ([u16; 3], (Child, ChildStdin)) {
    let mut command = Command::new("node");
    command.arg(scripts().join("start.mjs"));
    command.arg("--location").arg(folder);
    for (name, port) in ["blob", "queue", "table"].iter().zip(ports) {
        command.arg(format!("--{name}-port")).arg(port.to_string());
    }
    if ephemeral {
        command.arg("--ephemeral");
    }
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("`node` cannot be run ({error}): install Node 20 or newer"));
    let stdin = child.stdin.take().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let told: serde_json::Value = serde_json::from_str(&line)
        .unwrap_or_else(|_| panic!("the emulator did not start (see its error above): {line:?}"));
    let port = |name: &str| u16::try_from(told[name].as_u64().unwrap()).unwrap();
    ([port("blob"), port("queue"), port("table")], (child, stdin))
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("azurite")
}

/// Installs the emulator where it is missing. Test processes that start at once wait for one another.
fn install() {
    let folder = scripts();
    let modules = folder.join("node_modules");
    // npm writes this file last, so it stands for a whole installation.
    let done = modules.join(".package-lock.json");
    if done.exists() {
        return;
    }
    fs::create_dir_all(&modules).unwrap();
    let lock = File::create(folder.join("node_modules.lock")).unwrap();
    lock.lock().unwrap();
    if done.exists() {
        return;
    }
    let npm = Command::new("npm")
        .args(["ci", "--no-audit", "--no-fund"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("`npm` cannot be run ({error}): install Node 20 or newer"));
    assert!(
        npm.status.success(),
        "`npm ci` in azurite/ failed:\n{}",
        String::from_utf8_lossy(&npm.stderr)
    );
}

/// A signature for the whole account until `end`, as a portal would make it.
pub(crate) fn account_signature(end: &str) -> String {
    let (version, services, types, rights) = ("2018-11-09", "bqt", "sco", "rwdlacup");
    let text = format!("{ACCOUNT}\n{rights}\n{services}\n{types}\n\n{end}\n\n\n{version}\n");
    let signature = STANDARD.encode(hmac_sha256(&STANDARD.decode(KEY).unwrap(), text.as_bytes()));
    let signature = url::form_urlencoded::byte_serialize(signature.as_bytes()).collect::<String>();
    format!("sv={version}&ss={services}&srt={types}&sp={rights}&se={end}&sig={signature}")
}

fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let padded = |pad: u8| -> Vec<u8> {
        (0..64)
            .map(|i| key.get(i).copied().unwrap_or(0) ^ pad)
            .collect()
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(text)
        .finalize();
    Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner)
        .finalize()
        .to_vec()
}
