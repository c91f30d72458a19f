/* SPDX-License-Identifier: Apache-2.0 */
/* Which fields of Megatron-Bridge's configuration say what an argument of
 * Megatron-LM says. Sources: Megatron-Bridge 0.3.1, training/config.py,
 * training/mixed_precision.py, models/gpt_provider.py and mla_provider.py;
 * Megatron-LM core 0.16.1, megatron/training/arguments.py. */
#ifndef LHI_BRIDGE_FIELDS_H
#define LHI_BRIDGE_FIELDS_H

#include <stddef.h>

/* Objects of a ConfigContainer. */
typedef enum lhi_bridge_part {
    LHI_BRIDGE_MODEL,
    LHI_BRIDGE_TRAIN,
    LHI_BRIDGE_OPTIMIZER,
    LHI_BRIDGE_DDP,
    LHI_BRIDGE_DIST,
    LHI_BRIDGE_DATASET,
    LHI_BRIDGE_CHECKPOINT,
    LHI_BRIDGE_PRECISION,
    LHI_N_BRIDGE_PARTS,
} lhi_bridge_part;

/* How the words behind an argument become a value in Python. */
typedef enum lhi_bridge_value {
    LHI_BRIDGE_SAME,  /* a number, or a list that Python reads as well */
    LHI_BRIDGE_TEXT,  /* a string */
    LHI_BRIDGE_TEXTS, /* a list of strings, a word each */
    LHI_BRIDGE_TUPLE, /* "127,0" */
    LHI_BRIDGE_ENUM,  /* `text` with the word behind it */
    LHI_BRIDGE_FIXED, /* `text`, whatever stands behind the argument */
    LHI_BRIDGE_NONE,  /* nothing of its own: megatron_bridge.c says how */
} lhi_bridge_value;

typedef struct lhi_bridge_field {
    const char *argument; /* without "--" */
    lhi_bridge_part part;
    lhi_bridge_value value;
    const char *field; /* NULL: called as the argument, with '_' for '-' */
    const char *text;
} lhi_bridge_field;

/* Rows of one argument follow each other. */
extern const lhi_bridge_field lhi_bridge_fields[];
extern const size_t lhi_n_bridge_fields;

#endif
