"""
What stands in for GPUs and for the other ranks while a program is captured.

`install` changes torch in this process: `init_process_group` makes a group that sends nothing,
"cuda" means a fake device on the CPU, streams and events are recorded, and process groups are
written down as they are made. It can not be undone: capture runs in a process of its own.
"""

# mypy: allow-subclassing-any, allow-untyped-calls

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed import device_mesh, distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from commsim.graph import Phase
from commsim.traces.capture import ddp
from commsim.traces.capture.calls import made_group, wait_for_work
from commsim.traces.capture.fused_kernels import install_fused_kernels
from commsim.traces.capture.library_checks import pass_checks
from commsim.traces.capture.mode import resized
from commsim.traces.capture.one_device import (
    GeneratorAnywhere,
    modules_on_one_device,
    on_one_device_in_backwards,
)
from commsim.traces.capture.pipelines import install_pipelines
from commsim.traces.capture.recorder import (
    CapturedEvent,
    Stream,
    StreamContext,
    current_stream,
    recorder,
)
from commsim.traces.capture.records import Sync
from commsim.traces.capture.sync_batch_norm import install_sync_batch_norm
from commsim.traces.capture.values import install_values

__all__ = ["install"]


def install(rank: int, world: int, local: int, per_node: int, folder: Path) -> None:
    """Put all stand-ins in place for rank `rank` of `world`; ranks leave notes in `folder`."""
    _groups(rank, world)
    _meshes()
    _streams()
    _cuda(local, per_node)
    modules_on_one_device()
    _fully_sharded_modules()
    install_pipelines(folder)
    _optimizers()
    _loaders()
    on_one_device_in_backwards()
    pass_checks()
    install_values()
    install_sync_batch_norm()
    install_fused_kernels()
    torch.nn.parallel.DistributedDataParallel = ddp.DistributedDataParallel
    torch.nn.parallel.distributed.DistributedDataParallel = ddp.DistributedDataParallel
    resize = torch.UntypedStorage.resize_

    def counted(storage: Any, size: int) -> Any:
        resized(storage, size)
        return resize(storage, size)

    torch.UntypedStorage.resize_ = counted
    # `module.to(...)` swaps tensors; the mode of fake tensors keeps weak references to them,
    # which torch would refuse without need.
    torch.utils.weakref = SimpleNamespace(getweakrefs=lambda tensor: [])


def _groups(rank: int, world: int) -> None:
    make, make_one = dist.init_process_group, dist.new_group

    def init(*how: Any, **more: Any) -> None:
        make("fake", rank=rank, world_size=world, store=FakeStore())
        made_group(range(world), "world")

    def new_group(ranks: Any = None, *how: Any, **more: Any) -> Any:
        members = sorted(ranks) if ranks is not None else range(world)
        made_group(members, more.get("group_desc"))
        kept = {name: more[name] for name in ("group_desc",) if name in more}
        return make_one(members, backend="fake", **kept)

    def batch(ops: list[Any]) -> list[Any]:
        recorder.batches += 1
        recorder.batch = recorder.batches
        try:
            return [op.op(op.tensor, op.peer, group=op.group, tag=op.tag) for op in ops]
        finally:
            recorder.batch = -1

    for module in (dist, distributed_c10d, device_mesh):  # the last asks for a world by itself
        module.init_process_group = init
        module.new_group = new_group
        module.batch_isend_irecv = batch
    dist.Work.wait = wait_for_work
    distributed_c10d.Work.wait = wait_for_work
    from torch._C._distributed_c10d import FakeWork

    FakeWork.wait = wait_for_work


def _loaders() -> None:
    """Load data in the captured process: tensors of other processes would be real."""
    loader = torch.utils.data.DataLoader
    begin = loader.__init__

    @functools.wraps(begin)
    def start(self: Any, dataset: Any, *how: Any, **more: Any) -> None:
        given = inspect.signature(begin).bind(self, dataset, *how, **more)
        if given.arguments.get("num_workers"):
            recorder.note("DataLoader: its workers are not captured; it loads in place.")
        for name in (
            "num_workers",
            "prefetch_factor",
            "persistent_workers",
            "pin_memory",
            "multiprocessing_context",
            "timeout",
        ):
            given.arguments.pop(name, None)
        begin(*given.args, **given.kwargs)

    loader.__init__ = start


def _meshes() -> None:
    """Let meshes compute on real tensors, and name their device as it stands in."""
    mesh = device_mesh.DeviceMesh
    for name, member in list(vars(mesh).items()):
        if isinstance(member, staticmethod):
            setattr(mesh, name, staticmethod(_unfaked(member.__func__)))
        elif isinstance(member, classmethod):
            setattr(mesh, name, classmethod(_unfaked(member.__func__)))
        elif callable(member) and (not name.startswith("__") or name in _OWN):
            setattr(mesh, name, _unfaked(member))
    make = device_mesh.init_device_mesh

    def init(device_type: str, *how: Any, **more: Any) -> Any:
        with unset_fake_temporarily():
            return make("cpu", *how, **more)

    device_mesh.init_device_mesh = init
    dist.init_device_mesh = init
    began = mesh.__init__

    def start(self: Any, device_type: str, *how: Any, **more: Any) -> None:
        began(self, "cpu", *how, **more)

    mesh.__init__ = start


_OWN = ("__init__", "__getitem__", "__eq__", "__hash__", "__repr__")


def _unfaked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def real(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    return real


def _streams() -> None:
    for module in (torch.cpu, torch.cuda):
        module.Stream = Stream
        module.Event = CapturedEvent
        module.current_stream = current_stream
        module.stream = StreamContext
    torch.Stream, torch.Event = Stream, CapturedEvent
    torch.cuda.default_stream = lambda device=None: Stream.made[0]
    torch.Tensor.record_stream = lambda self, stream: None
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group

    names = {
        "all_gather_copy_in_stream": "copy in",
        "all_gather_stream": "all gather",
        "reduce_scatter_stream": "reduce scatter",
        "all_reduce_stream": "all reduce",
    }
    context = _fsdp_param_group.FSDPCommContext
    begin = context.lazy_init

    def lazy_init(self: Any, device: Any) -> None:
        begin(self, device)
        for attribute, name in names.items():
            stream = getattr(self, attribute, None)
            if isinstance(stream, Stream) and stream.number:
                stream.name = name

    context.lazy_init = lazy_init


def _fully_sharded_modules() -> None:
    """Let the first FSDP take the device that stands in for an accelerator."""
    from torch.distributed.fsdp import _init_utils, fully_sharded_data_parallel

    init = _init_utils._init_device_handle

    def on_one_device(state: Any, module: Any, ignored: Any, device_id: Any) -> Any:
        return init(state, module, ignored, torch.device("cpu"))

    for module in (_init_utils, fully_sharded_data_parallel):
        vars(module)["_init_device_handle"] = on_one_device


_PROPERTIES = SimpleNamespace(
    name="captured GPU", total_memory=2**37, major=9, minor=0, multi_processor_count=132,
    warp_size=32, uuid="0", is_integrated=0, gcnArchName="",
)  # fmt: skip


def _cuda(local: int, per_node: int) -> None:
    """Answer what programs ask of `torch.cuda`; torch itself still sees that there is none."""
    cuda = torch.cuda

    def is_available() -> bool:
        return not str(sys._getframe(1).f_globals.get("__name__", "torch")).startswith("torch")

    def synchronize(device: Any = None) -> None:
        recorder.add(Sync(-1))

    answers: dict[str, Any] = {
        "is_available": is_available,
        "synchronize": synchronize,
        "device_count": lambda: per_node,
        "current_device": lambda: local,
        "get_device_name": lambda device=None: _PROPERTIES.name,
        "get_device_properties": lambda device=None: _PROPERTIES,
        "get_device_capability": lambda device=None: (9, 0),
        "is_bf16_supported": lambda *how: True,
        "max_memory_allocated": lambda device=None: recorder.peak,
        "memory_allocated": lambda device=None: recorder.held,
        "max_memory_reserved": lambda device=None: recorder.peak,
        "memory_reserved": lambda device=None: recorder.held,
        "mem_get_info": lambda device=None: (_PROPERTIES.total_memory, _PROPERTIES.total_memory),
        "memory_summary": lambda *how, **more: "memory: see the capture's own peak",
        "get_rng_state": lambda device=None: torch.get_rng_state(),
    }
    quiet = (
        "set_device", "empty_cache", "manual_seed", "manual_seed_all", "ipc_collect", "init",
        "reset_peak_memory_stats", "reset_max_memory_allocated", "set_per_process_memory_fraction",
        "nvtx.range_push", "nvtx.range_pop", "set_rng_state",
    )  # fmt: skip
    for name in quiet:
        owner: Any = cuda
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, lambda *how, **more: None)
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    torch.cpu.current_device = lambda: local
    begin = torch.amp.autocast_mode.autocast.__init__

    def autocast(self: Any, device_type: str, *how: Any, **more: Any) -> None:
        begin(self, "cpu" if str(device_type).startswith("cuda") else device_type, *how, **more)

    torch.amp.autocast_mode.autocast.__init__ = autocast
    torch.Generator = GeneratorAnywhere


def _optimizers() -> None:
    """Choose the kernels that optimizers choose on a GPU: over lists of tensors."""
    from torch.utils import _foreach_utils

    known = _foreach_utils._get_foreach_kernels_supported_devices

    def devices() -> list[str]:
        return [*known(), "cpu"]

    _foreach_utils._get_foreach_kernels_supported_devices = devices
    _foreach_utils._foreach_supported_types.append(FakeTensor)
    from torch.optim import optimizer

    optimizer._get_foreach_kernels_supported_devices = devices
    optimizer._foreach_supported_types.append(FakeTensor)
    recorder.phase = Phase.FORWARD
