/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a run's restarts after a rank's loss. */
#include "train_internal.h"

#include <inttypes.h>
#include <stdio.h>

bool train_restarts_text(const lh_train_result *r,
                         char text[TRAIN_PREDICTION_TEXT])
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n_restarts; i++)
        n += r->restarts[i].n_repeated;
    snprintf(text, TRAIN_PREDICTION_TEXT,
             "%" PRIu32 ", with %" PRIu64 " iteration%s repeated",
             r->n_restarts, n, n == 1 ? "" : "s");
    return r->n_restarts > 0;
}

json_t *train_restarts_json(const lh_train_result *r)
{
    json_t *all = json_array();
    for (uint32_t i = 0; all && i < r->n_restarts; i++)
        if (json_array_append_new(
                all, json_pack("{s:I, s:I}", "step",
                               (json_int_t)r->restarts[i].step, "repeated",
                               (json_int_t)r->restarts[i].n_repeated)) != 0) {
            json_decref(all);
            return NULL;
        }
    return all;
}
