# SPDX-License-Identifier: Apache-2.0
"""Reads Chakra execution traces without longhaul, and replays them.

The decoder implements protocol buffers and the field numbers of et_def.proto
(mlcommons/chakra 0.0.4). tests/peers/test_chakra.py compares it with Google's.
"""
import struct

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
# Field numbers of AttributeProto with plain numbers.
NUMBERS = (7, 9, 11, 13, 27)
TEXT = 29


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Yields each field of a message: its number and its value, a number or
    bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
        elif tag & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
            if len(value) != size:
                raise ValueError("a message is cut off")
        elif tag & 7 == 1:
            value, at = struct.unpack("<d", data[at:at + 8])[0], at + 8
        else:
            raise ValueError(f"wire type {tag & 7}")
        yield tag >> 3, value


def attribute(data):
    name, value = "", None
    for field, found in fields(data):
        if field == 1:
            name = found.decode()
        elif field in NUMBERS:
            value = found
        elif field == TEXT:
            value = found.decode()
    return name, value


def packed(found):
    """Returns the numbers of a repeated field, packed or not."""
    if isinstance(found, int):
        return [found]
    numbers, at = [], 0
    while at < len(found):
        number, at = varint(found, at)
        numbers.append(number)
    return numbers


def node(data):
    """Returns a node as a map: its fields and its attributes."""
    n = {"id": 0, "name": "", "type": 0, "control": [], "data": [],
         "start": 0, "duration": 0}
    for field, found in fields(data):
        if field == 4:
            n["control"] += packed(found)
        elif field == 5:
            n["data"] += packed(found)
        elif field == 10:
            key, value = attribute(found)
            n[key] = value
        elif field == 2:
            n["name"] = found.decode()
        elif field in (1, 3, 6, 7):
            n[{1: "id", 3: "type", 6: "start", 7: "duration"}[field]] = found
    return n


def read_rank(path):
    """Returns the metadata's attributes and version, and the nodes of a
    file."""
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at:at + size])
        at += size
    metadata = {}
    for field, found in fields(messages[0]):
        if field == 1:
            metadata["version"] = found.decode()
        else:
            key, value = attribute(found)
            metadata[key] = value
    return metadata, [node(message) for message in messages[1:]]


def encoded(number):
    """Encodes a number as a varint."""
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7f | 0x80])
        number >>= 7
    return out + bytes([number])


def encoded_field(field, value):
    """Encodes a field: its number, and a number, a text or bytes."""
    if isinstance(value, int):
        return encoded(field << 3) + encoded(value)
    data = value.encode() if isinstance(value, str) else value
    return encoded(field << 3 | 2) + encoded(len(data)) + data


def write_rank(path, nodes):
    """Writes nodes (id, type, microseconds, dependencies, attributes). Packs
    dependencies like Google's protocol buffers."""
    out = b""
    for message in [encoded_field(1, "0.0.4")] + [
            encoded_field(1, i) + encoded_field(3, kind)
            + encoded_field(5, b"".join(map(encoded, needs)))
            + encoded_field(7, micros)
            + b"".join(encoded_field(10, encoded_field(1, name) + encoded_field(
                TEXT if isinstance(value, str) else 9, value))
                for name, value in attributes.items())
            for i, kind, micros, needs, attributes in nodes]:
        out += encoded(len(message)) + message
    path.write_bytes(out)


def replay(ranks):
    """Replays a trace. Every node starts when its dependencies allow: data
    dependencies at their end, control dependencies when the device or link is
    free. A receive starts with its send. Returns the end of each rank's last
    node in ns, and each node's start."""
    nodes = {(r, n["id"]): n for r, rank in enumerate(ranks) for n in rank}
    sends = {(n["comm_src"], n["comm_dst"], n["comm_tag"]): (r, n["id"])
             for (r, _), n in nodes.items() if n["type"] == SEND}
    # For each node: its successors, each with the delay from the node's start.
    followers, missing = {key: [] for key in nodes}, dict.fromkeys(nodes, 0)
    for (rank, i), n in nodes.items():
        needs = [((rank, d), nodes[rank, d].get("occupied_ns",
                                                nodes[rank, d]["duration_ns"]))
                 for d in n["control"]]
        needs += [((rank, d), nodes[rank, d]["duration_ns"])
                  for d in n["data"]]
        if n["type"] == RECEIVE:
            needs.append((sends[n["comm_src"], n["comm_dst"], n["comm_tag"]],
                          0))
        missing[rank, i] = len(needs)
        for key, after in needs:
            followers[key].append(((rank, i), after))
    starts = dict.fromkeys(nodes, 0)
    ready = [key for key, n in missing.items() if n == 0]
    for key in ready:
        for follower, after in followers[key]:
            starts[follower] = max(starts[follower], starts[key] + after)
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    if len(ready) < len(nodes):
        raise ValueError("nodes wait for each other")
    return ([max(starts[r, n["id"]] + n["duration_ns"] for n in rank)
             for r, rank in enumerate(ranks)], starts)
