/* SPDX-License-Identifier: Apache-2.0 */
/* --jitter: how commands take delays that vary, and show what they do. */
#ifndef CLI_JITTER_VIEW_H
#define CLI_JITTER_VIEW_H

#include "inputs.h"

#include <longhaul/jitter.h>
#include <longhaul/report.h>

typedef struct cli_jitter {
    const char *spec; /* NULL: none */
    uint32_t samples;
} cli_jitter;

/* Rows of an option table; `settings` has a cli_jitter called `jitter`. */
#define CLI_JITTER_ROWS(settings)                                              \
    {.name = "jitter",                                                         \
     .type = CLI_TEXT,                                                         \
     .at = offsetof(settings, jitter.spec),                                    \
     .arg = "WHAT=HOW,...",                                                    \
     .like = "latency=0.2,degraded=0.01x3",                                    \
     .help = "Iterations under delays drawn at random: latency=A and "         \
             "transfer=A make links slower by the share A on average "         \
             "(exponentially distributed), degraded=PxK a link K times as "    \
             "slow with probability P, straggler=PxK a device (of jobs and "   \
             "plans: a GPU, and the devices that it is part of)."},            \
    {                                                                          \
        .name = "samples", .type = CLI_COUNT,                                  \
        .at = offsetof(settings, jitter.samples), .arg = "N",                  \
        .preset = "1000", .least = 1, .most = 1000000,                         \
        .help = "Iterations drawn for --jitter."                               \
    }

/* Wrong usage where --samples is given and --jitter is not. */
lh_status cli_check_jitter(cli *c, const cli_jitter *given);
/* Reads the option into *out, with --seed. Wrong usage where it says what there
 * is not. */
lh_status cli_read_jitter(cli *c, const cli_jitter *given, lh_jitter *out);
/* What a rate of stragglers, of each of so many GPUs, comes to for all of them:
 * at most CLI_STRAGGLER_TEXT bytes; "" where there are none. */
enum { CLI_STRAGGLER_TEXT = 160 };
char *cli_straggler_text(double rate, uint32_t n_gpus, char *text);

/* What the iterations of a report vary by. */
typedef struct cli_varied {
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_sim_options *sim; /* NULL: the defaults */
    const lh_jitter *jitter;   /* its samples are not 0 */
    int64_t after_ns;          /* of each iteration, which does not vary */
    int64_t usual_ns;          /* of an iteration without jitter */
} cli_varied;
/* Draws all of them again, and adds their histogram. */
lh_status cli_jitter_report(cli *c, const cli_varied *varied,
                            lh_report *report);

#endif
