/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of MLCommons Chakra's execution traces, for export and replay: wire
 * types of Protocol Buffers, and fields and values of
 * schema/protobuf/et_def.proto (mlcommons/chakra 0.0.4). */
#ifndef LHI_INTEROP_CHAKRA_SCHEMA_H
#define LHI_INTEROP_CHAKRA_SCHEMA_H

/* A field's encodings, in the lowest three bits of its tag. */
enum {
    LHI_WIRE_VARINT = 0,
    LHI_WIRE_FIXED64 = 1,
    LHI_WIRE_BYTES = 2, /* length-delimited */
    LHI_WIRE_FIXED32 = 5,
};

/* Fields of GlobalMetadata, Node and AttributeProto. */
enum {
    LHI_CHAKRA_METADATA_VERSION = 1,
    LHI_CHAKRA_METADATA_ATTRIBUTE = 2,

    LHI_CHAKRA_ID = 1,
    LHI_CHAKRA_NAME = 2,
    LHI_CHAKRA_TYPE = 3,
    LHI_CHAKRA_CONTROL = 4, /* ids of control dependencies */
    LHI_CHAKRA_DATA = 5,    /* ids of data dependencies */
    LHI_CHAKRA_START = 6,   /* in microseconds, as the duration */
    LHI_CHAKRA_DURATION = 7,
    LHI_CHAKRA_ATTRIBUTE = 10,

    LHI_CHAKRA_ATTRIBUTE_NAME = 1,
    LHI_CHAKRA_ATTRIBUTE_INT32 = 7,
    LHI_CHAKRA_ATTRIBUTE_INT64 = 9,
    LHI_CHAKRA_ATTRIBUTE_UINT64 = 13,
    LHI_CHAKRA_ATTRIBUTE_BOOL = 27,
    LHI_CHAKRA_ATTRIBUTE_STRING = 29,
};

/* Types of nodes. */
enum {
    LHI_CHAKRA_COMPUTE = 4,
    LHI_CHAKRA_SEND = 5,
    LHI_CHAKRA_RECEIVE = 6,
    LHI_CHAKRA_COLLECTIVE = 7,
};

/* Kinds of collectives, the values of the attribute comm_type. */
enum {
    LHI_CHAKRA_ALL_GATHER = 2,
    LHI_CHAKRA_REDUCE_SCATTER = 7,
};

#endif
