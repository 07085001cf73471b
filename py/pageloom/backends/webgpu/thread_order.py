"""A check of an opened device: programs take neighbours in a workgroup for neighbours in a subgroup, as drivers number
threads in one dimension, though WGSL does not promise it."""

from __future__ import annotations

from dataclasses import replace

from pageloom.backends.webgpu import templates
from pageloom.backends.webgpu.device import SUBGROUP_MATRICES, Device, DeviceInfo, Dispatch
from pageloom.backends.webgpu.program import ProgramKey
from pageloom.errors import DeviceError, DeviceLost

WORKGROUP = 128
REFUSED = "the driver does not number the threads of a subgroup in the order of the workgroup"


async def usable_info(device: Device) -> DeviceInfo:
    """`device.info`, and without subgroups where their threads do not exchange what they would between neighbours.

    Where this raises, the device is closed.
    """
    if not device.info.has_subgroups:
        return device.info
    refused = REFUSED
    try:
        if await _exchanges_between_neighbours(device):
            return device.info
    except BaseException as error:
        if not isinstance(error, DeviceError) or isinstance(error, DeviceLost):
            device.close()
            raise
        refused = f"the driver fails at exchanges within subgroups: {error.message}"
    return replace(
        device.info,
        features=device.info.features - {"subgroups", SUBGROUP_MATRICES},
        subgroup_min_size=0,
        subgroup_max_size=0,
        matrix_shapes=frozenset(),
        subgroups_refused=refused,
    )


async def _exchanges_between_neighbours(device: Device) -> bool:
    width = min(device.info.subgroup_min_size, WORKGROUP)
    key = ProgramKey.of("lib/thread_order.wgsl.j2", workgroup_size=WORKGROUP, width=width)
    pipeline = await device.pipeline(templates.render(key), str(key))
    misplaced = device.buffer(4 * WORKGROUP, "misplaced threads")
    try:
        device.submit(device.record([Dispatch(pipeline, (misplaced,), (1, 1, 1))], "thread order"))
        return not any(await device.read(misplaced, 0, misplaced.size))
    finally:
        misplaced.destroy()
