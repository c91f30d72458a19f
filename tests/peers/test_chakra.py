#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Google's protocol buffers read exported Chakra traces.

    test_chakra.py PROGRAM SOURCE_ROOT

Needs grpcio-tools and $LONGHAUL_CHAKRA_SCHEMA: et_def.proto of
https://github.com/mlcommons/chakra (schema/protobuf).
"""
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from skip_without import SKIP, skip_without

from chakra_traces import read_rank, varint

SCHEMA = os.environ.get("LONGHAUL_CHAKRA_SCHEMA")
if not SCHEMA:
    print("SKIPPED: no $LONGHAUL_CHAKRA_SCHEMA, the path of et_def.proto; that "
          "Chakra traces follow the published schema is not tested.",
          file=sys.stderr)
    sys.exit(SKIP)
try:
    from grpc_tools import protoc
except ImportError as error:
    skip_without("grpc_tools", error, "LONGHAUL_PROTOBUF",
            "Chakra traces are read by protocol buffers")

PROGRAM, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
FIELDS = {"id": "id", "name": "name", "type": "type", "control": "ctrl_deps",
          "data": "data_deps", "start": "start_time_micros",
          "duration": "duration_micros"}


def compiled(folder):
    """Returns the compiled module of the schema."""
    source = pathlib.Path(SCHEMA)
    if protoc.main(["", f"-I{source.parent}", f"--python_out={folder}",
                    source.name]):
        sys.exit(f"{SCHEMA} does not compile")
    sys.path.insert(0, folder)
    return importlib.import_module(source.stem + "_pb2")


def values(attributes):
    """Returns each attribute's value by its name."""
    return {attribute.name: getattr(attribute, attribute.WhichOneof("value"))
            for attribute in attributes}


def compare(theirs, ours):
    """Checks that the fields and attributes of both decoders are equal, and
    that the schema defines every field."""
    found = {name: getattr(theirs, field) for name, field in FIELDS.items()}
    found["control"], found["data"] = (list(theirs.ctrl_deps),
                                       list(theirs.data_deps))
    found |= values(theirs.attr)
    assert found == ours, (found, ours)
    size = theirs.ByteSize()
    theirs.DiscardUnknownFields()
    assert theirs.ByteSize() == size, f"unknown fields in {theirs}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        schema, checked = compiled(folder), 0
        subprocess.run(
            [PROGRAM, "export", str(ROOT / "examples/pipeline-two-sites.yaml"),
             "--to", "chakra", "-s", "zb-h1", "-o", folder + "/et", "-q"],
            check=True)
        for path in sorted(pathlib.Path(folder).glob("et.*.et")):
            data, at, messages = path.read_bytes(), 0, []
            while at < len(data):
                size, at = varint(data, at)
                messages.append(data[at:at + size])
                at += size
            metadata, nodes = read_rank(path)
            head = schema.GlobalMetadata.FromString(messages[0])
            found = values(head.attr) | {"version": head.version}
            assert found == metadata, (found, metadata)
            for message, ours in zip(messages[1:], nodes, strict=True):
                theirs = schema.Node.FromString(message)
                compare(theirs, ours)
                assert schema.NodeType.Name(theirs.type) != "INVALID_NODE"
                checked += 1
        assert checked, "no nodes"
        print(f"{checked} nodes read equally")


main()
