"""Fails today with an audit hook (as filelock >= 4 installs on CPython >= 3.12): argv: "hook",
"filelock" or "none"."""

import sys
import threading
import time

import tb_memplugin

if sys.argv[1] == "hook":
    sys.addaudithook(lambda event, args: None)
elif sys.argv[1] == "filelock":
    pass


kept = [[] for _ in range(200_000)]
done = faults = 0
stop = threading.Event()


def user():
    global done, faults
    while not stop.is_set():
        try:
            tuple(number for number in range(50_000))
            done += 1
        except SystemError:
            faults += 1


thread = threading.Thread(target=user)
thread.start()
end, listings = time.time() + 10, 0
while time.time() < end:
    tb_memplugin.memory_summary()
    listings += 1
stop.set()
thread.join()
print(
    sys.version.split()[0],
    sys.argv[1],
    "listings",
    listings,
    "tuples",
    done,
    "SystemErrors",
    faults,
)
sys.exit(faults > 0)
