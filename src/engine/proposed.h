/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules that are proposed while a run goes on, from texts to execution
 * plans. The ranks of a process share them: one of them lowers and proves, the
 * others find what it has made. */
#ifndef LHI_PROPOSED_H
#define LHI_PROPOSED_H

#include "engine/exec.h"
#include "engine/messages.h"
#include "engine/seats.h"

/* Those that ranks of this process use now; for several threads. */
typedef struct lhi_proposals lhi_proposals;

typedef struct lhi_proposed {
    const char *text;
    lhi_texts texts;
    const lh_exec *exec;
    const lhi_seats *seats; /* who has what then */
    /* With their numbers of layers, of which `exec` is. */
    const lh_pipeline *pipeline;
} lhi_proposed;

/* All are of the pipeline, and lowered under `options`, but for the paths that
 * they have themselves. `seating`: what may move; NULL: nothing. All are
 * borrowed. */
lh_status lhi_proposals_make(const lh_pipeline *pipeline,
                             const lh_exec_options *options,
                             const lhi_seating *seating, lhi_proposals **out,
                             lh_error *err);
/* Once all are released. NULL is fine. */
void lhi_proposals_free(lhi_proposals *proposals);

/* Lowers and proves, unless that is done; `text` is copied. Errors as of
 * lh_schedule_parse() and lh_exec_make(); LH_EINPUT: no paths of the pipeline's
 * links. Release with lhi_proposed_release(). */
lh_status lhi_proposed_take(lhi_proposals *proposals, const char *text,
                            const lhi_texts *texts, const lhi_proposed **out,
                            lh_error *err);
/* How messages go, as one of the texts, into `out`, which has room for
 * LHI_PATHS_ROOM and a byte for each link of the pipeline: "direct",
 * "delegated", or mixed, a 0 or 1 per link. Its length. */
enum { LHI_PATHS_ROOM = 16 };
uint32_t lhi_paths_write(lh_data_path path, const bool *delegated,
                         uint32_t n_links, char *out);
/* For one user more. */
const lhi_proposed *lhi_proposed_hold(const lhi_proposed *proposed);
void lhi_proposed_release(const lhi_proposed *proposed); /* NULL is fine */

#endif
