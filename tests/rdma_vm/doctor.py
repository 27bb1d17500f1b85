"""`ciuic doctor --peer` inside the guest: the devices, their addresses, and figures over verbs. doctor.py BROKER CIUIC"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def main():
    broker_program, ciuic = sys.argv[1:3]
    here, there = os.environ["RDMA_VM_ADDR0"], os.environ["RDMA_VM_ADDR1"]
    passed = failed = 0

    def expect(what, holds):
        nonlocal passed, failed
        passed, failed = passed + bool(holds), failed + (not holds)
        if not holds:
            print(f"FAILED: {what}")

    with tempfile.TemporaryDirectory() as folder:
        port_file = pathlib.Path(folder) / "port"

        def start(*settings):
            port_file.unlink(missing_ok=True)
            common = [f"log.dirs={folder}/logs", "listeners=PLAINTEXT://127.0.0.1:0", f"onesided.listen={there}"]
            words = [word for one in [*common, *settings] for word in ("--override", one)]
            process = subprocess.Popen([broker_program, "--port-file", port_file, *words], stderr=subprocess.DEVNULL)
            while not port_file.exists():
                time.sleep(0.01)
            return process, f"127.0.0.1:{port_file.read_text().strip()}"

        broker, bootstrap = start("onesided.providers=shm,verbs,ofi")
        try:
            def doctor(*words):
                done = subprocess.run([ciuic, "doctor", "-b", bootstrap, "--json", *words], stdout=subprocess.PIPE, text=True)
                return {one["what"]: one for one in json.loads(done.stdout)}

            empty = doctor("--peer")
            expect("without a record the doctor says what to do", "write a few records" in empty["peer by verbs"]["remedy"])
            subprocess.run([ciuic, "topics", "create", "t", "-b", bootstrap], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([ciuic, "produce", "t", "-b", bootstrap], input="word\n" * 10000, text=True, check=True, stdout=subprocess.DEVNULL)
            found = doctor("--peer", "--source", here)
            expect("both devices", "rxe0" in found["RDMA devices"]["detail"] and "rxe1" in found["RDMA devices"]["detail"])
            expect("addresses with their devices", f"{there} on rxe1" in found["fabric addresses"]["detail"])
            expect("RoCE v2 GIDs", "rxe0 1 " in found["RoCE GIDs"]["detail"])
            expect("the library", "libibverbs" in found["rdma-core"]["detail"])
            expect("libfabric and what it has", "verbs: the card enforces" in found["libfabric"]["detail"])
            for provider in ("verbs", "shm", "ofi"):
                peer = found[f"peer by {provider}"]
                expect(f"figures over {provider}", peer["state"] == "good" and "MB/s" in peer["detail"])
            expect("the address it read from", found["peer by verbs"]["detail"].startswith(there))
            lost = doctor("--peer", "--source", "192.0.2.1")["peer by verbs"]
            expect("a source that is not ours is refused with words", lost["state"] == "missing" and lost["remedy"])

            broker.kill()
            broker.wait()
            for device in ("rxe0", "rxe1"):
                subprocess.run(["rdma", "link", "del", device], check=True)
            broker, bootstrap = start("onesided.providers=verbs")
            peer = lambda: doctor("--peer", "--source", here).get("peer by verbs", {"state": "not offered"})["state"]
            expect("without any device nothing is offered", peer() != "good")
            for end in ("0", "1"):
                subprocess.run(["rdma", "link", "add", f"rxe{end}", "type", "rxe", "netdev", f"rdma{end}"], check=True)
            until = time.monotonic() + 30
            while (state := peer()) != "good" and time.monotonic() < until:
                time.sleep(0.2)
            expect("a broker started before its device listens once it is there", state == "good")
        finally:
            broker.kill()
            broker.wait()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
