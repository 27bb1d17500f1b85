#!/usr/bin/env python3
"""tools/packaging/kubernetes and the image, against the programs: fields are Kubernetes' own, names agree across the files, settings,
commands and flags exist, the broker starts as the manifest starts it and answers its probes."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "unit" / "python"))
import counted  # noqa: E402

BROKER, CIUIC = os.environ["CIUIC_BROKER"], os.environ["CIUIC_COMMAND"]
PACKAGING = ROOT / "tools" / "packaging"
PROGRAMS = {"/usr/bin/ciuic-broker": BROKER, "/usr/bin/ciuic": CIUIC}

# Kubernetes' fields (API of 1.25 to 1.37), as far as a manifest of ours may want them. A value names the fields of what is below it; a
# list's are those of its elements; None: a value or a free map.
PROBE = {"exec": {"command": None}, "tcpSocket": {"host": None, "port": None}, "httpGet": None, "grpc": None, "initialDelaySeconds": None,
         "periodSeconds": None, "timeoutSeconds": None, "failureThreshold": None, "successThreshold": None,
         "terminationGracePeriodSeconds": None}
RESOURCES = {"requests": None, "limits": None}
CONTAINER = {
    "name": None, "image": None, "imagePullPolicy": None, "command": None, "args": None, "workingDir": None,
    "env": {"name": None, "value": None,
            "valueFrom": {"fieldRef": {"fieldPath": None}, "configMapKeyRef": {"name": None, "key": None},
                          "secretKeyRef": {"name": None, "key": None}}},
    "ports": {"name": None, "containerPort": None, "protocol": None, "hostPort": None},
    "securityContext": {"runAsUser": None, "runAsGroup": None, "runAsNonRoot": None, "privileged": None, "readOnlyRootFilesystem": None,
                        "allowPrivilegeEscalation": None, "capabilities": {"add": None, "drop": None}, "seccompProfile": {"type": None}},
    "resources": RESOURCES, "startupProbe": PROBE, "readinessProbe": PROBE, "livenessProbe": PROBE,
    "volumeMounts": {"name": None, "mountPath": None, "readOnly": None, "subPath": None}}
METADATA = {"name": None, "namespace": None, "labels": None, "annotations": None}
SELECTOR = {"matchLabels": None}
POD = {"metadata": METADATA,
       "spec": {"containers": CONTAINER, "initContainers": CONTAINER, "restartPolicy": None, "terminationGracePeriodSeconds": None,
                "automountServiceAccountToken": None, "hostNetwork": None, "nodeSelector": None, "tolerations": None,
                "securityContext": {"fsGroup": None, "runAsUser": None, "runAsGroup": None, "runAsNonRoot": None},
                "volumes": {"name": None, "configMap": {"name": None}, "hostPath": {"path": None, "type": None},
                            "emptyDir": {"medium": None, "sizeLimit": None}, "persistentVolumeClaim": {"claimName": None}}}}
KINDS = {
    ("v1", "ConfigMap"): {"data": None},
    ("v1", "Service"): {"spec": {"clusterIP": None, "type": None, "publishNotReadyAddresses": None, "selector": None,
                                 "ports": {"name": None, "port": None, "targetPort": None, "protocol": None}}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "spec": {"podSelector": SELECTOR, "policyTypes": None,
                 "ingress": {"from": {"podSelector": SELECTOR, "namespaceSelector": SELECTOR}, "ports": {"protocol": None, "port": None}}}},
    ("apps/v1", "StatefulSet"): {
        "spec": {"serviceName": None, "replicas": None, "selector": SELECTOR, "template": POD, "podManagementPolicy": None,
                 "volumeClaimTemplates": {"metadata": METADATA, "spec": {"accessModes": None, "storageClassName": None,
                                                                        "resources": RESOURCES}}}},
    ("batch/v1", "Job"): {"spec": {"backoffLimit": None, "parallelism": None, "completions": None, "template": POD}},
    ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"): {"spec": {"config": None}}}


def documents(name):
    return list(yaml.safe_load_all((PACKAGING / "kubernetes" / name).read_text()))


def unknown_fields(value, fields, where):
    if fields is None:
        return []
    if isinstance(value, list):
        return [found for at, one in enumerate(value) for found in unknown_fields(one, fields, f"{where}[{at}]")]
    if not isinstance(value, dict):
        return [f"{where}: {value!r} where an object belongs"]
    return [found for key, below in value.items()
            for found in (unknown_fields(below, fields[key], f"{where}.{key}") if key in fields else [f"{where}.{key}"])]


def of_kind(name, kind):
    (found,) = [one for one in documents(name) if one["kind"] == kind]
    return found


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(|Mi|Gi|Ti)", quantity).groups()
    return int(number) << {"": 0, "Mi": 20, "Gi": 30, "Ti": 40}[unit]


def properties():
    (text,) = of_kind("broker.yaml", "ConfigMap")["data"].values()
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def pod_of(document):
    return document["spec"]["template"]


def container_of(document):
    (container,) = pod_of(document)["spec"]["containers"]
    return container


class Manifests(unittest.TestCase):
    def setUp(self):
        self.broker, self.trainer = of_kind("broker.yaml", "StatefulSet"), of_kind("trainer.yaml", "Job")
        self.container = container_of(self.broker)

    def test_every_field_is_one_of_kubernetes(self):
        files = sorted(path.name for path in (PACKAGING / "kubernetes").iterdir())
        self.assertEqual(files, ["broker.yaml", "fabric.yaml", "trainer.yaml"])
        for name in files:
            for one in documents(name):
                fields = {"apiVersion": None, "kind": None, "metadata": METADATA, **KINDS[one["apiVersion"], one["kind"]]}
                self.assertEqual(unknown_fields(one, fields, f"{name} {one['kind']}"), [])

    def test_the_check_of_fields_finds_what_is_wrong(self):
        self.container["livenessProbe"]["tcpsocket"] = {}
        pod_of(self.broker)["spec"]["containers"][0]["resource"] = {}
        self.broker["spec"]["selector"] = "ciuic-kafka"
        self.assertEqual(len(unknown_fields(self.broker["spec"], KINDS["apps/v1", "StatefulSet"]["spec"], "")), 3)

    def test_settings_are_the_brokers(self):
        printed = subprocess.run([BROKER, "--print-settings", "markdown"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"`([a-z0-9.]+)`", printed))
        overrides = {word.split("=")[0] for word in self.container["args"] if "=" in word}
        self.assertEqual((set(properties()) | overrides) - known, set())

    def test_labels_services_and_ports_meet(self):
        service, policy = of_kind("broker.yaml", "Service"), of_kind("broker.yaml", "NetworkPolicy")
        labels = pod_of(self.broker)["metadata"]["labels"]
        self.assertEqual(self.broker["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(service["spec"]["selector"], labels)
        self.assertEqual(policy["spec"]["podSelector"]["matchLabels"], labels)
        self.assertEqual(self.broker["spec"]["serviceName"], service["metadata"]["name"])
        (rule,) = policy["spec"]["ingress"]
        self.assertEqual(rule["from"][0]["podSelector"]["matchLabels"], pod_of(self.trainer)["metadata"]["labels"])
        port = int(properties()["listeners"].rsplit(":", 1)[1])
        self.assertEqual(self.container["ports"], [{"name": "kafka", "containerPort": port}])
        self.assertEqual([one["port"] for one in service["spec"]["ports"] + rule["ports"]], [port, port])
        for probe in ("startupProbe", "readinessProbe"):
            self.assertEqual(self.container[probe]["tcpSocket"]["port"], "kafka")
        name, service_name = self.broker["metadata"]["name"], service["metadata"]["name"]
        self.assertIn(f"advertised.listeners=PLAINTEXT://$(POD_NAME).{service_name}.$(POD_NAMESPACE).svc:{port}", self.container["args"])
        self.assertEqual({one["name"] for one in self.container["env"]}, {"POD_NAME", "POD_NAMESPACE"})
        self.assertEqual(container_of(self.trainer)["env"], [{"name": "CIUIC_BOOTSTRAP", "value": f"{name}-0.{service_name}:{port}"}])

    def test_card_network_and_pinned_memory_are_asked_for_by_both(self):
        plug_in, network = of_kind("fabric.yaml", "ConfigMap"), of_kind("fabric.yaml", "NetworkAttachmentDefinition")
        (card,) = json.loads(plug_in["data"]["config.json"])["configList"]
        self.assertEqual(json.loads(network["spec"]["config"])["master"], card["selectors"]["ifNames"][0])
        resource = "rdma/" + card["resourceName"]
        for document in (self.broker, self.trainer):
            container, pod = container_of(document), pod_of(document)
            self.assertEqual(container["resources"]["requests"][resource], "1")
            self.assertEqual(container["resources"]["limits"][resource], "1", "extended resources want both, equal")
            self.assertIn("IPC_LOCK", container["securityContext"]["capabilities"]["add"])
            self.assertEqual(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"], network["metadata"]["name"])

    def test_what_is_mounted_is_there_and_where_the_settings_say(self):
        claims = [one["metadata"]["name"] for one in self.broker["spec"]["volumeClaimTemplates"]]
        for document, claimed in ((self.broker, claims), (self.trainer, [])):
            volumes = claimed + [one["name"] for one in pod_of(document)["spec"]["volumes"]]
            self.assertEqual(sorted(one["name"] for one in container_of(document)["volumeMounts"]), sorted(volumes))
        places = {one["name"]: one["mountPath"] for one in self.container["volumeMounts"]}
        self.assertEqual(places["data"], properties()["log.dirs"])
        self.assertEqual(places["run"], properties()["onesided.runtime.dir"])
        self.assertEqual(self.container["args"][0], places["config"] + "/server.properties")
        shared = [one["hostPath"]["path"] for document in (self.broker, self.trainer)
                  for one in pod_of(document)["spec"]["volumes"] if one["name"] == "run"]
        self.assertEqual(shared + [container_of(self.trainer)["volumeMounts"][0]["mountPath"]], [places["run"]] * 3)
        self.assertEqual(properties()["onesided.shm.socket.mode"], "0666", "other pods' readers are other users")

    def test_memory_is_enough_and_the_end_is_as_long_as_under_systemd(self):
        limit = bytes_of(self.container["resources"]["limits"]["memory"])
        self.assertEqual(self.container["resources"]["requests"]["memory"], self.container["resources"]["limits"]["memory"])
        self.assertGreaterEqual(limit, int(properties()["log.memory.bytes"]) + (2 << 30))
        stop = re.search(r"^TimeoutStopSec=(\d+)$", (PACKAGING / "ciuic-broker.service").read_text(), re.M)[1]
        self.assertEqual(pod_of(self.broker)["spec"]["terminationGracePeriodSeconds"], int(stop))
        probe = self.container["livenessProbe"]
        patience = int(probe["exec"]["command"][probe["exec"]["command"].index("--timeout") + 1]) / 1000
        self.assertGreater(probe["timeoutSeconds"], patience, "the command says why itself")

    def test_the_broker_starts_so_and_answers_its_probe_and_the_trainers_question(self):
        with tempfile.TemporaryDirectory(prefix="ciuic-kubernetes-") as folder:
            file = pathlib.Path(folder, "server.properties")
            file.write_text("\n".join(f"{key}={value}" for key, value in properties().items()))
            words = [str(file) if word == self.container["args"][0] else
                     word.replace("$(POD_NAME)", "ciuic-kafka-0").replace("$(POD_NAMESPACE)", "default") for word in self.container["args"]]
            here = {"log.dirs": f"{folder}/logs", "listeners": "PLAINTEXT://127.0.0.1:0", "onesided.runtime.dir": f"{folder}/run",
                    "log.memory.bytes": "268435456"}
            os.makedirs(f"{folder}/logs/lost+found")  # of a volume that is a file system of its own
            words += [word for key, value in here.items() for word in ("--override", f"{key}={value}")]
            with open(f"{folder}/log", "w") as log:
                broker = subprocess.Popen([BROKER, *words, "--port-file", f"{folder}/port"], stdout=log, stderr=subprocess.STDOUT)
            try:
                end = time.monotonic() + 20
                while not os.path.exists(f"{folder}/port"):
                    self.assertIsNone(broker.poll(), pathlib.Path(folder, "log").read_text())
                    self.assertLess(time.monotonic(), end)
                    time.sleep(0.01)
                address = "127.0.0.1:" + pathlib.Path(folder, "port").read_text().strip()

                def run(command, **environment):
                    command = [PROGRAMS[command[0]], *command[1:]]
                    command = [address if word == "127.0.0.1:9092" else "500" if word == "15000" else word for word in command]
                    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)

                probe = self.container["livenessProbe"]["exec"]["command"]
                ran = run(probe)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                (name,) = [one["name"] for one in container_of(self.trainer)["env"]]
                asked = run(container_of(self.trainer)["command"], **{name: address})
                self.assertIn(asked.returncode, (0, 4), asked.stderr)
                self.assertIn("ciuic-kafka-0.ciuic-kafka.default.svc:9092", asked.stdout, "the name the broker tells, unknown here")
                sockets = [path for path in pathlib.Path(folder, "run").iterdir() if path.is_socket()]
                self.assertEqual([oct(path.stat().st_mode & 0o777) for path in sockets], ["0o666"])
                broker.send_signal(signal.SIGSTOP)
                self.assertNotEqual(run(probe).returncode, 0, "a broker that hangs is alive for tcpSocket alone")
                broker.send_signal(signal.SIGCONT)
            finally:
                broker.kill()
                broker.wait()


class Image(unittest.TestCase):
    text = (PACKAGING / "Containerfile").read_text()

    def packages(self):
        (listed,) = re.findall(r"--no-install-recommends \\\n(.*?) && \\\n", self.text, re.S)
        return set(listed.replace("\\", " ").split())

    def test_it_runs_what_the_manifests_run(self):
        (entry,) = re.findall(r"^ENTRYPOINT (.*)$", self.text, re.M)
        (copied,) = re.findall(r"^COPY (build.*) /usr/bin/$", self.text, re.M)
        self.assertEqual(sorted("/usr/bin/" + pathlib.Path(one).name for one in copied.split()), sorted(PROGRAMS))
        self.assertEqual(json.loads(entry), ["/usr/bin/ciuic-broker"])
        version = re.search(r"ciuic-broker (\S+)", subprocess.run([BROKER, "--version"], capture_output=True, text=True, check=True).stdout)[1]
        images = {container_of(of_kind("broker.yaml", "StatefulSet"))["image"], container_of(of_kind("trainer.yaml", "Job"))["image"]}
        self.assertEqual(images, {"ciuic-kafka:" + version})
        self.assertIn(f"-t ciuic-kafka:{version} ", self.text)
        self.assertNotIn("command", container_of(of_kind("broker.yaml", "StatefulSet")), "arguments of the image's entry point")

    def test_it_has_the_libraries_that_the_programs_link_to(self):
        if shutil.which("dpkg-query") is None:
            self.skipTest("not a Debian system")
        for program in PROGRAMS.values():
            linked = re.findall(r"^\s*(lib\S+) => (/\S+)", subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout, re.M)
            for name, path in linked:
                if re.match(r"lib(c|m|pthread|dl|rt|resolv|asan|tsan|ubsan|gcov)\.so", name):
                    continue  # of every image; of a sanitizer's build
                owners = subprocess.run(["dpkg-query", "-S", f"*/{name}*"], capture_output=True, text=True).stdout
                packages = {line.split(":")[0] for line in owners.splitlines()}
                self.assertTrue(packages & self.packages(), f"{program} links to {path}, of {packages}")

    def test_it_has_the_libraries_that_the_providers_load(self):
        loaded = set()
        for source in (ROOT / "transport" / "rdma").glob("*/library.cpp"):
            loaded |= set(re.findall(r'"(lib\w+)\.so\.(\d+)"', source.read_text()))
        packages = {"libibverbs": "libibverbs1", "librdmacm": "librdmacm1", "libfabric": "libfabric1", "libucp": "libucx0",
                    "libucs": "libucx0"}
        self.assertGreaterEqual(len(loaded), 4)
        self.assertEqual({packages[name] for name, _ in loaded} - self.packages(), set())
        self.assertIn("ibverbs-providers", self.packages(), "the cards' own half of libibverbs")


if __name__ == "__main__":
    counted.main()
