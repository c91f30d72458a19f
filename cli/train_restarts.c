/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a run's restarts after a rank's loss. */
#include "train_internal.h"

#include <inttypes.h>

void train_restarts_print(cli *c, const lh_train_result *r)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->n_restarts; i++)
        n += r->restarts[i].n_repeated;
    if (r->n_restarts)
        cli_print(c,
                  "restarts      %" PRIu32 ", with %" PRIu64
                  " iteration%s repeated\n",
                  r->n_restarts, n, n == 1 ? "" : "s");
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
