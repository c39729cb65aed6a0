//! Creates, starts and awaits the nodes of a server.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::servers::credentials::{Credentials, Password};
use crate::servers::error::{Error, OnPath, Result, last_lines};
use crate::servers::home::{Home, create, remove};
use crate::servers::launching::java::find_java;
use crate::servers::launching::ports::Ports;
use crate::servers::launching::process::Process;
use crate::servers::launching::setup::Setup;
use crate::servers::network::{Network, check_namespaces, open_files};
use crate::servers::node::Node;
use crate::servers::products::elasticsearch;
use crate::servers::products::kind::{Distribution, ServerKind};
use crate::servers::products::opensearch;
use crate::servers::products::product::install;
use crate::servers::products::security_plugin;
use crate::servers::state::{State, take_down};

/// The variable with the timeout of a server's start, in seconds.
const TIMEOUT_VARIABLE: &str = "TXN_SERVERS_TIMEOUT";
const USUAL_TIMEOUT: u64 = 300;
const USUAL_CLUSTER_TIMEOUT: u64 = 600;

/// Writes the configuration of every node.
pub(crate) fn configure(setup: &Setup<'_>) -> Result<()> {
    match setup.state.kind.distribution() {
        Distribution::Elasticsearch(_) => elasticsearch::configure(setup),
        Distribution::OpenSearch { .. } => opensearch::configure(setup),
    }
}

fn start_command(setup: &Setup<'_>, node: &Node) -> Command {
    match setup.state.kind.distribution() {
        Distribution::Elasticsearch(_) => elasticsearch::start_command(setup, node),
        Distribution::OpenSearch { .. } => opensearch::start_command(setup, node),
    }
}

/// Creates and starts a server in an empty folder.
///
/// Calls `prepare` with the nodes before their start. Waits until the server is healthy. An
/// unhealthy server is taken down again.
pub(crate) fn launch(
    home: &Home,
    kind: ServerKind,
    folder: &Path,
    owner: Option<Process>,
    heap: Option<u32>,
    prepare: impl FnOnce(&[Node]) -> Result<()>,
) -> Result<State> {
    if kind.is_partitioned() {
        check_namespaces()?;
    }
    let java = find_java(kind.java_versions())?;
    let product = install(home, kind.distribution())?;
    remove(folder)?;
    create(folder)?;
    let mut state = {
        let _lock = home.lock("ports")?;
        let servers = recorded(home);
        let ports = servers.iter().flat_map(|state| &state.nodes);
        let ports = ports.flat_map(|node| [node.http_port, node.transport_port]);
        let mut state = plan(kind, folder, java, owner, Ports::except(ports))?;
        state.heap = heap;
        if kind.is_partitioned() {
            let taken = servers.iter().filter_map(|state| state.network.as_ref());
            let taken: Vec<u8> = taken.map(Network::number).collect();
            enter_namespaces(&mut state, Network::choose(kind.node_count(), &taken)?);
        }
        state.save()?;
        state
    };
    eprintln!("{}: starting", state.cluster_name);
    let began = Instant::now();
    let result = configure_and_start(home, &product, &mut state, prepare);
    if let Err(error) = result {
        take_down(folder, false)?;
        return Err(error);
    }
    eprintln!("{}: healthy after {:.0?}", state.cluster_name, began.elapsed());
    Ok(state)
}

fn configure_and_start(
    home: &Home,
    product: &Path,
    state: &mut State,
    prepare: impl FnOnce(&[Node]) -> Result<()>,
) -> Result<()> {
    if let Some(network) = &state.network {
        network.create()?;
        open_files::prepare(&state.folder)?;
    }
    configure(&Setup { home, product, state })?;
    if let Some(path) = &state.ca_certificate {
        // Only the node can read its own copy. Every user can read this one.
        let inside = state.nodes[0].data.with_file_name("config").join("ca.crt");
        let pem = fs::read_to_string(&inside).on("read", &inside)?;
        fs::write(path, pem).on("write", path)?;
    }
    for node in &state.nodes {
        create(&node.data)?;
        home.give(&node.folder)?;
    }
    prepare(&state.nodes)?;
    let all: Vec<usize> = (0..state.nodes.len()).collect();
    start(home, product, state, &all)
}

/// Returns every recorded server.
///
/// A server that is starting does not listen on its ports yet.
fn recorded(home: &Home) -> Vec<State> {
    let folders = fs::read_dir(home.servers()).into_iter().flatten().flatten();
    folders.filter_map(|folder| State::load(&folder.path())).collect()
}

/// Gives the nodes the addresses of a network.
fn enter_namespaces(state: &mut State, network: Network) {
    for (index, node) in state.nodes.iter_mut().enumerate() {
        node.http_port = Network::HTTP_PORT;
        node.transport_port = Network::TRANSPORT_PORT;
        node.url = format!("http://{}:{}", network.observer_address(index), node.http_port);
    }
    state.network = Some(network);
}

fn plan(
    kind: ServerKind,
    folder: &Path,
    java: PathBuf,
    owner: Option<Process>,
    mut ports: Ports,
) -> Result<State> {
    let is_opensearch = matches!(kind.distribution(), Distribution::OpenSearch { .. });
    let is_secured = kind.is_secured();
    let scheme = if is_secured { "https" } else { "http" };
    let mut nodes = Vec::new();
    for number in 1..=kind.node_count() {
        let name = format!("node-{number}");
        let http_port = if is_opensearch { ports.opensearch_http()? } else { ports.general()? };
        let node_folder = folder.join(&name);
        create(&node_folder)?;
        nodes.push(Node {
            url: format!("{scheme}://127.0.0.1:{http_port}"),
            data: node_folder.join(if is_opensearch { "node_1/data" } else { "data" }),
            process: Process::default(),
            folder: node_folder,
            name,
            http_port,
            transport_port: ports.general()?,
        });
    }
    let credentials = match kind {
        ServerKind::Secured => {
            Some(Credentials { username: "elastic".to_owned(), password: Password::random()? })
        }
        ServerKind::SecuredOpenSearch => Some(security_plugin::superuser()),
        _ => None,
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    Ok(State {
        kind,
        cluster_name: format!("txn-{name}"),
        folder: folder.to_owned(),
        java,
        nodes,
        ca_certificate: is_secured.then(|| folder.join("ca.crt")),
        credentials,
        owner,
        network: None,
        heap: None,
    })
}

/// Starts nodes that are not running, and waits until they are healthy.
pub(crate) fn start(
    home: &Home,
    product: &Path,
    state: &mut State,
    indices: &[usize],
) -> Result<()> {
    let mut pending = Vec::new();
    for &index in indices {
        let child = spawn(&Setup { home, product, state }, &state.nodes[index])?;
        state.nodes[index].process = if elasticsearch::becomes_daemon(state.kind) {
            Process::default()
        } else {
            Process::of(child.id()).unwrap_or_default()
        };
        pending.push((index, child));
    }
    state.save()?;
    let result = wait(state, &mut pending);
    for (_, mut child) in pending {
        // A thread has to wait for the child, or a zombie stays.
        thread::spawn(move || child.wait());
    }
    result
}

fn spawn(setup: &Setup<'_>, node: &Node) -> Result<Child> {
    let pid_file = elasticsearch::pid_file(node);
    if pid_file.exists() {
        fs::remove_file(&pid_file).on("remove", &pid_file)?;
    }
    let log = node.console_log();
    let output = File::options().create(true).append(true).open(&log).on("open", &log)?;
    let errors = output.try_clone().on("open", &log)?;
    let mut command = start_command(setup, node);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.spawn().map_err(|error| Error::Missing {
        what: "`setsid`, or the right to run it".to_owned(),
        remedy: format!("it is part of util-linux ({error})"),
    })
}

fn wait(state: &mut State, children: &mut [(usize, Child)]) -> Result<()> {
    let doctor = state.doctor()?;
    let limit = timeout(state.kind);
    let began = Instant::now();
    let mut pending: Vec<&mut (usize, Child)> = children.iter_mut().collect();
    loop {
        let expected = state.nodes.iter().filter(|node| node.is_active()).count();
        let mut next = Vec::new();
        for entry in pending {
            let (index, child) = &mut *entry;
            let complaint = match watch(state, *index, child)? {
                Watch::NotYet => Some("it has no process yet".to_owned()),
                Watch::Runs => doctor.complaint(&state.nodes[*index].url, expected.max(1)),
                Watch::Ended(how) => return Err(not_healthy(state, *index, how)),
            };
            if let Some(complaint) = complaint {
                if began.elapsed() >= limit {
                    let reason = format!("not healthy after {limit:?}: {complaint}");
                    return Err(not_healthy(state, *index, reason));
                }
                next.push(entry);
            }
        }
        if next.is_empty() {
            return Ok(());
        }
        pending = next;
        thread::sleep(Duration::from_millis(200));
    }
}

enum Watch {
    NotYet,
    Runs,
    Ended(String),
}

/// Watches a starting node's process, and notes the server's process id.
fn watch(state: &mut State, index: usize, child: &mut Child) -> Result<Watch> {
    let ended = child.try_wait().map_err(|error| Error::Other(error.to_string()))?;
    if let Some(status) = ended
        && !(status.success() && elasticsearch::becomes_daemon(state.kind))
    {
        return Ok(Watch::Ended(format!("it ended while starting ({status})")));
    }
    let node = &mut state.nodes[index];
    if node.process.pid == 0 {
        let pid = fs::read_to_string(elasticsearch::pid_file(node)).unwrap_or_default();
        let Some(process) = pid.trim().parse().ok().and_then(Process::of) else {
            return Ok(if ended.is_some() {
                Watch::Ended("it ended while starting".to_owned())
            } else {
                Watch::NotYet
            });
        };
        node.process = process;
        state.save()?;
    } else if !node.is_alive() {
        return Ok(Watch::Ended("it ended while starting".to_owned()));
    }
    Ok(Watch::Runs)
}

fn timeout(kind: ServerKind) -> Duration {
    let usual = if kind.node_count() > 1 { USUAL_CLUSTER_TIMEOUT } else { USUAL_TIMEOUT };
    let wanted = env::var(TIMEOUT_VARIABLE).ok().and_then(|text| text.parse().ok());
    Duration::from_secs(wanted.unwrap_or(usual))
}

fn not_healthy(state: &State, index: usize, reason: String) -> Error {
    let node = &state.nodes[index];
    let log = node.console_log();
    let tail = last_lines(&fs::read_to_string(&log).unwrap_or_default(), 30);
    Error::NotHealthy { server: format!("{} {}", state.cluster_name, node.name), reason, log, tail }
}
