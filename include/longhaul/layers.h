/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that move from a device that has become slow to others, and back once
 * it is well again. Chunks keep their devices and their order; how many layers
 * each has changes. The rules: docs/theory/places.md.
 *
 * No threads, no files, no clock. Times are nanoseconds. */
#ifndef LONGHAUL_LAYERS_H
#define LONGHAUL_LAYERS_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_layers lh_layers; /* immutable once made */

/* `pipeline`: while nothing is slow; `layers`: of each of its chunks, at least
 * 1. Layers are alike: a pass of one takes what it does in the chunk where that
 * is least, and what a chunk takes beside its layers stays with it; memory and
 * data-parallel times are in proportion. Both are copied. LH_EINVAL: a chunk
 * has no layer. Release with lh_layers_free(). */
LH_API lh_status lh_layers_make(const lh_pipeline *pipeline,
                                const uint32_t *layers, lh_layers **out,
                                lh_error *err);
LH_API void lh_layers_free(lh_layers *layers); /* NULL is fine */

/* `pipeline`, which has each chunk's first number of layers and may be slow,
 * with other numbers, that add up to as many. LH_EINVAL: it has another shape
 * than the first one, or they do not. Release with lh_pipeline_free(). */
LH_API lh_status lh_layers_pipeline(const lh_layers *layers,
                                    const lh_pipeline *pipeline,
                                    const uint32_t *numbers, lh_pipeline **out,
                                    lh_error *err);

/* What it takes that chunks with `from` layers come to have `to`, where sending
 * what a host keeps of one layer takes layer_ns: layers go from chunk to chunk,
 * each host sends one at a time, and receives one. LH_EINVAL: these are not as
 * many, or a chunk has none. */
LH_API lh_status lh_layers_moving(const lh_layers *layers, const uint32_t *from,
                                  const uint32_t *to, int64_t layer_ns,
                                  int64_t *out_ns, lh_error *err);

typedef struct lh_layers_options {
    size_t size;               /* sizeof(lh_layers_options) */
    const uint32_t *numbers;   /* of each chunk, now; NULL: as at first */
    const lh_sim_options *sim; /* how messages go; NULL: as usual */
    int64_t layer_ns; /* sending what a host keeps of one layer to another */
    double lasts; /* iterations for which it counts; 0: as many as it takes */
} lh_layers_options;

typedef struct lh_layer_move {
    bool is_move; /* layers are to move: it saves more than it costs */
    uint32_t n_chunks;
    const uint32_t *numbers; /* of each chunk, then; as now if none moves */
    int64_t now_ns, predicted_ns; /* an iteration of the schedule */
    int64_t move_ns;  /* what moving takes; each host sends one at a time, and
                         receives one */
    uint32_t n_moves; /* layers that another device has then */
    uint64_t n_tried; /* numbers that were simulated */
    const char *why;  /* a sentence or two, for people */
} lh_layer_move;

/* Numbers of layers with which the coming iterations, and moving to them, take
 * less: one layer at a time, from the chunk to the chunk where that gains most,
 * as long as it gains, from those of now and from the first ones. Numbers with
 * which the schedule has no room in memory are left out. `pipeline` as above.
 * Errors as of lh_layers_pipeline() and lh_simulate(). Release with
 * lh_layer_move_free(). */
LH_API lh_status lh_layers_find(const lh_layers *layers,
                                const lh_pipeline *pipeline,
                                const lh_schedule *schedule,
                                const lh_layers_options *options,
                                lh_layer_move **out, lh_error *err);
LH_API void lh_layer_move_free(lh_layer_move *move); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
