"""What the peers on a device share: timing by CUDA events, where numbers come from, and running wych beside them.

On device "cpu" the host's clock takes the events' place, so that every other line runs without a GPU. Used by
every script here that needs a GPU.
"""
import dataclasses
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time


@dataclasses.dataclass
class Timing:
    seconds: list  # of one call, a value a sample
    host_seconds: list  # the host's time to queue it, the same samples

    def median(self):
        return statistics.median(self.seconds)

    def record(self):
        """For JSON. Where the host needs as long to queue a call as the device to run it, the device waited."""
        return {"seconds": self.median(), "all_seconds": self.seconds,
                "launch_bound": statistics.median(self.host_seconds) > 0.9 * self.median()}


def time_calls(torch, device, work, repeats, warm_up=2, calls=1):
    """`repeats` samples of `calls` calls each, after samples that warm up."""
    timing = Timing([], [])
    for repeat in range(warm_up + repeats):
        if device == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
        begin = time.perf_counter()
        for _ in range(calls):
            work()
        host = time.perf_counter() - begin
        seconds = host
        if device == "cuda":
            end.record()
            end.synchronize()
            seconds = start.elapsed_time(end) * 1e-3
        if repeat >= warm_up:
            timing.seconds.append(seconds / calls)
            # Without a device nothing is queued: the call itself is the work.
            timing.host_seconds.append(host / calls if device == "cuda" else 0.0)
    return timing


def out_of_memory(torch, error):
    """Libraries under PyTorch say it in words of their own."""
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "alloc_failed" in words


def memory(torch, device):
    """What PyTorch's allocator had in use at most and had taken from the device; nothing on the CPU."""
    if device != "cuda":
        return {}
    return {"peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
            "peak_reserved_gib": torch.cuda.max_memory_reserved() / 2**30}


def release(torch, device, result):
    """Gives the device's memory back before somebody else measures; `result` says what a leak would leave."""
    torch._dynamo.reset()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        result["left_allocated_bytes"] = torch.cuda.memory_allocated()


def product_tflops(torch, device, size):
    """Rate of one large bfloat16 product: the anchor that runs on shared hardware are compared by."""
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    rate = 2e-12 * size**3 / time_calls(torch, device, lambda: a @ b, 10, calls=4).median()
    del a, b
    if device == "cuda":
        torch.cuda.empty_cache()  # wych runs next, and says what the device has in use
    return rate


def first_line(command):
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip().splitlines()[0] if run.returncode == 0 and run.stdout.strip() else None


def origin(commit=None):
    """What every record says of itself. `commit`: for machines without git's folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    return {"command": shlex.join(["python3", *sys.argv]), "date": datetime.date.today().isoformat(),
            "commit": commit or first_line(["git", "-C", here, "rev-parse", "--short", "HEAD"]),
            "python": platform.python_version()}


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def machine():
    """The processor, for what runs on it."""
    names = []
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"processor": names[0] if names else platform.machine(), "cores": os.cpu_count()}


def provenance(torch, device, commit=None):
    """Versions, hardware and the command: every record of a peer on PyTorch carries them."""
    record = origin(commit) | {"torch": torch.__version__, "transformers": version_of("transformers"),
                               "triton": version_of("triton")}
    if device == "cuda":
        state = first_line(["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.max.sm,clocks.mem",
                            "--format=csv,noheader"])
        record |= {"gpu": torch.cuda.get_device_name(), "driver": state.split(", ")[0] if state else None,
                   "clocks_sm_max_memory": state.split(", ")[1:] if state else None,
                   "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                   "nccl": ".".join(str(part) for part in torch.cuda.nccl.version())}
    else:
        record |= {"gpu": None, "machine": machine() | {"threads": torch.get_num_threads()}}
    return record


def run_wych(binary, arguments, timeout):
    """What wych prints as JSON; {"error": why} where it is not there or refuses."""
    if not binary or not os.path.exists(binary):
        return {"error": f"{binary}: is not there"}
    try:
        run = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {timeout} s"}
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        return {"error": " ".join(line.strip() for line in lines)[:400]}
    try:
        return json.loads(run.stdout)
    except json.JSONDecodeError as error:
        return {"error": f"no JSON: {error}"}


def mean_of_turns(turns):
    """Of what `wych bench step` printed in its turns: the mean rate, each turn's, and memory; None if none ran."""
    turns = [turn for turn in turns if "error" not in turn]
    if not turns:
        return None
    rates = [turn["tokens_per_second"] for turn in turns]
    return {"tokens_per_second": sum(rates) / len(rates), "all_tokens_per_second": rates,
            "planned_gib": turns[0].get("planned_bytes", 0) / 2**30,
            "device_gib": turns[0].get("device_bytes", 0) / 2**30,
            "waits_per_step": turns[0].get("waits_per_step")}


def write_record(path, record):
    if path:
        with open(path, "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
