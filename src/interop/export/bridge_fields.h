/* SPDX-License-Identifier: Apache-2.0 */
/* Maps Megatron-LM arguments to fields in Megatron-Bridge's configuration.
 * Sources: Megatron-Bridge 0.3.1, training/config.py,
 * training/mixed_precision.py, models/gpt_provider.py and mla_provider.py;
 * Megatron-LM core 0.16.1, megatron/training/arguments.py. */
#ifndef LHI_INTEROP_EXPORT_BRIDGE_FIELDS_H
#define LHI_INTEROP_EXPORT_BRIDGE_FIELDS_H

#include <stddef.h>

/* Objects in a ConfigContainer. */
typedef enum lhi_bridge_object {
    LHI_BRIDGE_MODEL,
    LHI_BRIDGE_TRAIN,
    LHI_BRIDGE_OPTIMIZER,
    LHI_BRIDGE_DDP,
    LHI_BRIDGE_DIST,
    LHI_BRIDGE_DATASET,
    LHI_BRIDGE_CHECKPOINT,
    LHI_BRIDGE_PRECISION,
    LHI_N_BRIDGE_PARTS,
} lhi_bridge_object;

/* Conversions from an argument's words to a Python value. */
typedef enum lhi_bridge_value {
    LHI_BRIDGE_SAME,  /* number or list in Python syntax */
    LHI_BRIDGE_TEXT,  /* string */
    LHI_BRIDGE_TEXTS, /* string list, one per word */
    LHI_BRIDGE_TUPLE, /* tuple from "127,0" */
    LHI_BRIDGE_ENUM,  /* `text` followed by the argument's word */
    LHI_BRIDGE_FIXED, /* `text`, for any words of the argument */
    LHI_BRIDGE_NONE,  /* no field: megatron_bridge.c handles it */
} lhi_bridge_value;

/* A field with its argument and conversion. */
typedef struct lhi_bridge_field {
    const char *argument; /* without "--" */
    lhi_bridge_object part;
    lhi_bridge_value value;
    const char *field; /* NULL: the argument's name with '_' for '-' */
    const char *text;
} lhi_bridge_field;

/* All fields; rows for the same argument are adjacent. */
extern const lhi_bridge_field lhi_bridge_fields[];
extern const size_t lhi_n_bridge_fields;

#endif
