/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --jitter: parses varying delays and prints their effect. */
#ifndef CLI_JITTER_VIEW_H
#define CLI_JITTER_VIEW_H

#include "inputs.h"

#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/report.h>

/* Settings for --jitter. */
typedef struct cli_jitter {
    const char *spec; /* NULL: none */
    uint32_t samples;
} cli_jitter;

/* Option rows; `settings` has a cli_jitter named `jitter`. */
#define CLI_JITTER_ROWS(settings)                                              \
    {.name = "jitter",                                                         \
     .type = CLI_TEXT,                                                         \
     .at = offsetof(settings, jitter.spec),                                    \
     .arg = "WHAT=HOW,...",                                                    \
     .example_argument = "latency=0.2,degraded=0.01x3",                        \
     .help = "Sample iterations with random delays: latency=A and "            \
             "transfer=A slow links down by the share A on average "           \
             "(exponentially distributed); degraded=PxK makes a link K "       \
             "times as slow with probability P, and straggler=PxK a "          \
             "device of a pipeline file (for jobs and plans: a GPU, and with " \
             "it its pipeline rank)."},                                        \
    {                                                                          \
        .name = "samples", .type = CLI_COUNT,                                  \
        .at = offsetof(settings, jitter.samples), .arg = "N",                  \
        .preset = "1000", .least = 1, .most = 1000000,                         \
        .help = "Number of samples for --jitter."                              \
    }

/* Reports a usage error if --samples is given without --jitter. */
lh_status cli_check_jitter(cli *c, const cli_jitter *given);
/* Parses --jitter into *out, with --seed. Reports a usage error for unknown
 * keys. */
lh_status cli_read_jitter(cli *c, const cli_jitter *given, lh_jitter *out);
/* Formats the combined effect of a per-GPU straggler rate over n_gpus GPUs, in
 * at most CLI_STRAGGLER_TEXT bytes; "" without stragglers. */
enum { CLI_STRAGGLER_TEXT = 160 };
/* Formats the mean number of slow GPUs among n_gpus, and the share of
 * iterations with a slow one, if each is slow with probability `rate`, into
 * `text`, which it returns; "" for a rate outside (0, 1]. */
char *cli_straggler_text(double rate, uint32_t n_gpus, char *text);

/* Inputs for a report on varying iterations. */
typedef struct cli_jitter_report_input {
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_sim_options *sim; /* NULL: the defaults */
    const lh_jitter *jitter;   /* its samples are not 0 */
    int64_t after_ns;          /* each iteration's constant part */
    int64_t base_ns;           /* iteration time without jitter */
} cli_jitter_report_input;
/* Samples the iteration times under --jitter again and adds their histogram to
 * the report. */
lh_status cli_jitter_report(cli *c, const cli_jitter_report_input *varied,
                            lh_report *report);

#endif
