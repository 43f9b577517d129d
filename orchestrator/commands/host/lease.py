"""`campaign lease list` and `clear`: who has which device, and which did not come back clean."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from campaigns.errors import Exit, LeaseTimeout, NoDevice, UsageError
from orchestrator.commands.options import device_options


def add_lease_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("lease", help="devices of this host: who holds them, which are marked")
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="every device with its holder and its mark")
    listing.add_argument("--cluster", metavar="HOST:PORT", default="", help="of every node of the Ray there, too")
    listing.set_defaults(run=run_list)
    clearing = actions.add_parser("clear", help="remove the mark of a device that is idle again")
    clearing.add_argument("uuid", metavar="UUID", help="a device's UUID, or an unambiguous beginning of it")
    clearing.add_argument("--force", action="store_true", help="even if it is not idle: the next lease looks again")
    clearing.set_defaults(run=run_clear)
    for action in (listing, clearing):
        device_options(action)


def run_list(options: argparse.Namespace) -> int:
    if options.cluster:
        return _list_cluster(options)
    from orchestrator.hosts.devices.inventory import open_inventory
    from orchestrator.hosts.lease import state
    from orchestrator.hosts.locks import LockFolder

    folder = LockFolder(_lock_folder(options))
    with open_inventory(options.inventory) as inventory:
        devices = inventory.devices()
        for note in getattr(inventory, "notes", ()):
            print(f"campaign: {note}", file=sys.stderr)
        for device in devices:
            print(f"{device.index:>2}  {device.uuid}  {state(folder, inventory, device)}")
    for uuid in sorted(set(folder.uuids()) - {device.uuid for device in devices}):
        known = f"held by {folder.holder(uuid)}" if folder.is_held(uuid) else "not a device that is visible here"
        print(f" -  {uuid}  {known}")
    return int(Exit.COMPLETE)


def _list_cluster(options: argparse.Namespace) -> int:
    """WORLD where a node does not tell; the others are shown all the same."""
    from campaigns.plan import LeasePlan
    from orchestrator.startups.nodes import nodes

    found = nodes(LeasePlan(ray_address=options.cluster, inventory=options.inventory, lock_dir=options.lock_dir))
    for node in found:
        print(f"{node.host} ({node.address})  {node.fault or f'{node.num_cpus} CPUs'}")
        for device in node.devices:
            print(f"  {device.index:>2}  {device.uuid}  {device.name}  {device.state}")
    return int(Exit.WORLD if any(node.fault for node in found) else Exit.COMPLETE)


def run_clear(options: argparse.Namespace) -> int:
    """The mark goes once the device is idle; a lock goes only with the last process that holds it."""
    from orchestrator.hosts.devices.device import chosen
    from orchestrator.hosts.devices.inventory import open_inventory
    from orchestrator.hosts.lease import obstacle
    from orchestrator.hosts.locks import LockFolder

    folder = LockFolder(_lock_folder(options))
    with open_inventory(options.inventory) as inventory:
        try:
            [device] = chosen(inventory.devices(), (), (options.uuid,), "UUID")
        except NoDevice as error:
            raise UsageError(str(error)) from error  # a name that means nothing here, not a machine that refuses
        if folder.is_held(device.uuid):
            raise LeaseTimeout(
                f"{device.uuid} is held by {folder.holder(device.uuid)}: a lock cannot be cleared, it ends with the "
                "processes that hold it. Stop that campaign, or wait."
            )
        if folder.mark(device.uuid) is None:
            print(f"{device.uuid} has no mark")
            return int(Exit.COMPLETE)
        fault = obstacle(folder, inventory, device)
        if fault and not options.force:
            raise NoDevice(f"{fault}. End what is in the way, or clear it with --force.")
        folder.set_mark(device.uuid, None)
        print(f"{device.uuid}: mark removed")
    return int(Exit.COMPLETE)


def _lock_folder(options: argparse.Namespace) -> str:
    """Nothing is made here: in a new folder nobody holds anything, and that would be no answer."""
    if options.lock_dir and not Path(options.lock_dir).is_dir():
        raise UsageError(f"--lock-dir {options.lock_dir}: no such folder; name the lease.lock_dir of the runs")
    return str(options.lock_dir)
