/* SPDX-License-Identifier: Apache-2.0 */
/* Layer migration from a slow device to others, and back after recovery.
 * Chunks keep their devices and order; their layer counts change. Rules:
 * docs/theory/host-placement.md.
 *
 * No threads, files or clock. Times are nanoseconds.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_LAYERS_H
#define LONGHAUL_EXPERIMENTAL_LAYERS_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_layers lh_layers; /* immutable after creation */

/* Creates a model for pipelines with other layers per chunk. `pipeline` has no
 * slowdowns; layers[c] is chunk c's number of layers, at least 1. Copies both.
 * All layers count as equal: each takes its time in the chunk where it is
 * fastest, and a chunk's remaining time stays. Memory and data-parallel times
 * are proportional to layers. Release with lh_layers_free(). LH_EINVAL: a chunk
 * has no layer. */
LH_API lh_status lh_layers_make(const lh_pipeline *pipeline,
                                const uint32_t *layers, lh_layers **out,
                                lh_error *err);
LH_API void lh_layers_free(lh_layers *layers); /* frees; NULL is a no-op */

/* Builds the pipeline with numbers[c] layers in chunk c from `pipeline`, which
 * has the initial layers and may include slowdowns. Release with
 * lh_pipeline_free(). LH_EINVAL: `pipeline` has other chunks or links than the
 * model's, or the total layer count differs. */
LH_API lh_status lh_layers_pipeline(const lh_layers *layers,
                                    const lh_pipeline *pipeline,
                                    const uint32_t *numbers, lh_pipeline **out,
                                    lh_error *err);

/* Computes the time in ns to migrate from layers per chunk `from` to `to`, if
 * one layer's training state takes layer_ns to send. Layers move from chunk to
 * chunk; each host sends one layer at a time and receives one. LH_EINVAL: the
 * sums differ, or a chunk has no layer. */
LH_API lh_status lh_layers_migration_ns(const lh_layers *layers,
                                        const uint32_t *from,
                                        const uint32_t *to, int64_t layer_ns,
                                        int64_t *out_ns, lh_error *err);

/* Options for the search for another layer partition. */
typedef struct lh_layers_options {
    size_t size;                  /* sizeof(lh_layers_options) */
    const uint32_t *layer_counts; /* current layers per chunk; NULL: initial */
    const lh_sim_options *sim;    /* message options; NULL: defaults */
    int64_t layer_ns;     /* time to send one layer's state to another host */
    double benefit_steps; /* iterations that benefit; 0: 10^6 */
} lh_layers_options;

/* A proposed layer migration with its predicted effect. */
typedef struct lh_layer_migration {
    bool is_move; /* true if migration saves more than it costs */
    uint32_t n_chunks;
    const uint32_t *layer_counts; /* layers per chunk afterwards; unchanged if
                                   * no move */
    int64_t current_ns, predicted_ns; /* iteration time, before and after */
    int64_t move_ns;      /* migration time; each host sends one at a time and
                           * receives one */
    uint32_t n_moves;     /* layers that change device */
    uint64_t n_evaluated; /* partitions simulated */
    const char *why;      /* explanation in one or two sentences */
} lh_layer_migration;

#ifdef __cplusplus
}
#endif
#endif
