/* SPDX-License-Identifier: Apache-2.0 */
/* A measured iteration held against its prediction, pass by pass. */
#ifndef CLI_DIFFERENCE_H
#define CLI_DIFFERENCE_H

#include "view.h"

/* Passes of one kind that both traces have. */
typedef struct cli_kind_difference {
    uint64_t n;
    int64_t predicted_ns, measured_ns; /* added up */
} cli_kind_difference;

typedef struct cli_difference {
    bool there;
    int64_t predicted_ns, measured_ns; /* makespans */
    cli_kind_difference kinds[LH_B + 1];
    cli_kind_difference messages; /* from readiness to arrival */
    uint64_t n_passes, only_predicted, only_measured;
    double mean_start_ns; /* of the absolute differences */
    int64_t worst_start_ns;
    char worst[LH_PASS_TEXT];
    /* Where the two part: the first pass by the predicted times that starts
     * off by more than a thousandth of the makespan; "": none does. */
    char parts[LH_PASS_TEXT];
    uint32_t parts_device;
    int64_t parts_at_ns, parts_by_ns; /* predicted start; later by so much */
    bool parts_waits; /* it waited for a message that came later, too */
    /* All iterations of the run, of its log; NULL: there was none. */
    struct cli_logged {
        uint64_t step;
        int64_t ns;
    } *iterations;
    uint32_t n_iterations;
    int64_t median_ns; /* of them */
} cli_difference;

/* LH_EINPUT: the traces have no pass in common. */
lh_status cli_difference_make(cli *c, const lh_trace *predicted,
                              const lh_trace *measured, cli_difference *out);
/* The iterations of the last run in a log that train wrote (--log). Release
 * with cli_difference_fini(). */
lh_status cli_difference_log(cli *c, const char *path, cli_difference *d);
void cli_difference_fini(cli_difference *d);
void cli_difference_text(cli *c, const cli_difference *d);
json_t *cli_difference_json(const cli_difference *d, const char *report);
lh_status cli_difference_facts(cli *c, const cli_difference *d,
                               lh_report *report);

#endif
