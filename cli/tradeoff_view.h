/* SPDX-License-Identifier: Apache-2.0 */
/* Implements schedule --objective memory and --pareto: time against memory. */
#ifndef CLI_TRADEOFF_VIEW_H
#define CLI_TRADEOFF_VIEW_H

#include "optimal.h"

#include <longhaul/experimental/tradeoff.h>

/* Trade-off option settings. */
typedef struct cli_tradeoff {
    int64_t makespan_ns;
    const char *html;
    uint32_t points;
    bool pareto;
} cli_tradeoff;

/* Option rows; `settings` has a cli_tradeoff named `tradeoff`. */
#define CLI_TRADEOFF_ROWS(settings)                                            \
    {.name = "makespan",                                                       \
     .type = CLI_TIME,                                                         \
     .at = offsetof(settings, tradeoff.makespan_ns),                           \
     .arg = "TIME",                                                            \
     .example_argument = "3980ms",                                             \
     .help = "--objective memory: maximum makespan, with a unit: ns, "         \
             "us, ms, s (default: the least possible)."},                      \
        {.name = "pareto",                                                     \
         .type = CLI_FLAG,                                                     \
         .at = offsetof(settings, tradeoff.pareto),                            \
         .help = "optimal: print the least makespan per memory limit, as a "   \
                 "table and a plot, instead of one schedule."},                \
        {.name = "points",                                                     \
         .type = CLI_COUNT,                                                    \
         .at = offsetof(settings, tradeoff.points),                            \
         .arg = "N",                                                           \
         .preset = "64",                                                       \
         .least = 2,                                                           \
         .most = 10000,                                                        \
         .help = "--pareto: maximum number of points, evenly spread if there " \
                 "are more."},                                                 \
    {                                                                          \
        .name = "html", .type = CLI_OUTPUT,                                    \
        .at = offsetof(settings, tradeoff.html), .arg = "FILE",                \
        .help = "--pareto: write the curve as an HTML report.",                \
        .words = CLI_WORDS_FILES                                               \
    }

/* Finds the least memory limit under which a schedule takes at most --makespan,
 * into *out. sub_blocks: parts per W pass. */
lh_status cli_least_memory(cli *c, const cli_search *search,
                           const cli_model *model, uint32_t sub_blocks,
                           const cli_tradeoff *how, const lh_pipeline *pipeline,
                           lh_memory_point *out);
/* Computes the Pareto curve of makespan against memory limit and prints it.
 * sub_blocks: parts per W pass. */
lh_status cli_print_pareto_curve(cli *c, const cli_search *search,
                                 const cli_model *model, uint32_t sub_blocks,
                                 const cli_tradeoff *how,
                                 const lh_pipeline *pipeline);

#endif
