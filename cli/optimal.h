/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --method optimal: settings and search. */
#ifndef CLI_OPTIMAL_H
#define CLI_OPTIMAL_H

#include "inputs.h"

#include <longhaul/experimental/solve.h>

/* Optimal-schedule search settings. */
typedef struct cli_search {
    double time_limit_s, gap_percent;
    uint64_t effort;
    uint32_t memory_mib, threads;
    const char *start, *certificate, *without;
} cli_search;

/* Option rows; `settings` has a cli_search named `search`. */
#define CLI_SEARCH_ROWS(settings)                                              \
    {.name = "time-limit",                                                     \
     .type = CLI_REAL,                                                         \
     .at = offsetof(settings, search.time_limit_s),                            \
     .arg = "SECONDS",                                                         \
     .example_argument = "60",                                                 \
     .help = "optimal: stop after this time and keep the best so far "         \
             "(default: run until proven optimal; Ctrl-C stops it too)."},     \
        {.name = "effort",                                                     \
         .type = CLI_COUNT64,                                                  \
         .at = offsetof(settings, search.effort),                              \
         .arg = "N",                                                           \
         .least = 1,                                                           \
         .help = "optimal, auto: stop after N units of work, about a "         \
                 "million per second; the result is deterministic "            \
                 "(default for auto: 200000, with memory limits 1000000)."},   \
        {.name = "gap",                                                        \
         .type = CLI_REAL,                                                     \
         .at = offsetof(settings, search.gap_percent),                         \
         .arg = "PERCENT",                                                     \
         .example_argument = "0.5",                                            \
         .help = "optimal: stop when the makespan is within this percentage "  \
                 "of the proven bound."},                                      \
        {.name = "memory",                                                     \
         .type = CLI_COUNT,                                                    \
         .at = offsetof(settings, search.memory_mib),                          \
         .arg = "MIB",                                                         \
         .example_argument = "512",                                            \
         .least = 1,                                                           \
         .most = 1u << 24,                                                     \
         .help = "optimal: memory of the solver's tables (default 1024)."},    \
        {.name = "threads",                                                    \
         .type = CLI_COUNT,                                                    \
         .at = offsetof(settings, search.threads),                             \
         .arg = "N",                                                           \
         .least = 1,                                                           \
         .most = 1024,                                                         \
         .help = "optimal: use at most N threads (default: number of "         \
                 "processors); the result by --effort does not depend on "     \
                 "it."},                                                       \
        {.name = "certificate",                                                \
         .type = CLI_OUTPUT,                                                   \
         .at = offsetof(settings, search.certificate),                         \
         .arg = "FILE",                                                        \
         .help = "optimal: write the certificate of the proof, for 'longhaul " \
                 "check --certificate'.",                                      \
         .words = CLI_WORDS_FILES},                                            \
        {.name = "without",                                                    \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, search.without),                             \
         .arg = "NAME,...",                                                    \
         .example_argument = "beams,search",                                   \
         .help = "optimal, auto: disable these engines, for ablations; "       \
                 "see Engines below. Repeat the option to disable the "        \
                 "engines of all lists.",                                      \
         .list_separator = ',',                                                \
         .words = CLI_WORDS_ENGINES},                                          \
    {                                                                          \
        .name = "start", .type = CLI_TEXT,                                     \
        .at = offsetof(settings, search.start), .arg = "S.csv|PLAN",           \
        .example_argument = "s.csv",                                           \
        .help = "optimal: initial schedule to improve, from a CSV or a plan.", \
        .words = CLI_WORDS_FILES                                               \
    }

/* Fails with a usage error if --without names an unknown engine (algorithm of
 * the exact solver). */
lh_status cli_check_engines(cli *c, const cli_search *search);
/* Converts the command line's settings to solver options in *out. `sub_blocks`:
 * parts per W pass. *start: the initial schedule from --start, to which
 * out->start points; release it with lh_schedule_free(). */
lh_status cli_search_options(cli *c, const cli_search *search,
                             const cli_model *model, uint32_t sub_blocks,
                             lh_solve_options *out, lh_schedule **start);
/* Shows the search's progress on the terminal; `context` is the cli. Returns
 * true after an interrupt, to stop the search (callback). */
bool cli_search_show(void *context, const lh_solve_progress *now);
/* Begins a section in which the first Ctrl-C stops the search and a second one
 * the program. */
void cli_search_begin(const cli *c);
/* Ends the section that cli_search_begin() began: Ctrl-C ends the program
 * again. */
void cli_search_end(void);
/* Runs the solver with a progress line on a terminal; the first Ctrl-C stops
 * the search. sub_blocks: parts per W pass. */
lh_status cli_solve(cli *c, const cli_search *search, const cli_model *model,
                    uint32_t sub_blocks, const lh_pipeline *pipeline,
                    lh_solution *out);
/* Repeats a solution's proof from cli_solve() so that it can be checked,
 * and writes it to the file search->certificate. sub_blocks: parts per W pass.
 * *kind (may be NULL): the proof's kind, static storage. */
lh_status cli_write_certificate(cli *c, const cli_search *search,
                                const cli_model *model, uint32_t sub_blocks,
                                const lh_pipeline *pipeline,
                                const lh_solution *solution, const char **kind);

#endif
