/* SPDX-License-Identifier: Apache-2.0 */
/* Implements --path: selects the delegated messages. */
#ifndef CLI_DATA_PATHS_H
#define CLI_DATA_PATHS_H

#include "inputs.h"

#include <longhaul/experimental/delegate.h>

/* Option rows; `settings` has a const char *path, and an int64_t `staging`. */
#define CLI_PATH_ROWS(settings, staging_member, says)                          \
    {.name = "path",                                                           \
     .type = CLI_TEXT,                                                         \
     .at = offsetof(settings, path),                                           \
     .arg = "delegated|LINK=delegated,...",                                    \
     .example_argument = "delegated",                                          \
     .help = "Copy messages to host memory and send them from there, so "      \
             "that no pass waits for a send: all messages (delegated), "       \
             "or those on the given links (0-1=delegated in both "             \
             "directions, west>east=delegated in one)."},                      \
    {                                                                          \
        .name = "staging", .type = CLI_TIME,                                   \
        .at = offsetof(settings, staging_member), .arg = "TIME",               \
        .example_argument = "1ms", .help = says                                \
    }

/* A run's data paths. */
typedef struct cli_paths {
    lh_delegation delegation;
    /* `pipeline`'s delegated links; NULL: all messages */
    bool *links;
    lh_pipeline *pipeline; /* pipeline with these paths; NULL: not given */
} cli_paths;

/* Checks whether sends or receives can block under the options. Otherwise
 * direct sends and delegated ones (by a helper thread through host memory) give
 * equal times, unless copies take time. */
bool cli_paths_have_effect(const cli_model *model, const lh_pipeline *pipeline);
/* Fails with a usage error if --path (`text`; NULL: not given) would not change
 * the simulation: no send blocks under `model`, and copies take no time
 * (staging_ns, ns per copy through host memory, is 0). --path selects links
 * with delegated sends (by a helper thread). */
lh_status cli_paths_check(cli *c, const char *text, int64_t staging_ns,
                          const lh_pipeline *pipeline, const cli_model *model);
/* Parses --path (`text`; NULL: not given), which selects the links whose sends
 * are delegated (by a helper thread through host memory), and sets the data
 * paths in `model`. staging_ns: time of a copy. Release with cli_paths_fini(),
 * also after a failure. */
lh_status cli_paths_read(cli *c, const char *text, int64_t staging_ns,
                         const lh_pipeline *pipeline, cli_model *model,
                         cli_paths *out);
/* Sets in `model` each link's data path, direct or delegated sends (by a helper
 * thread through host memory), from out->delegation for this pipeline. */
lh_status cli_paths_apply(cli *c, const lh_pipeline *pipeline, cli_model *model,
                          cli_paths *out);
/* Frees the link flags and the pipeline from cli_paths_read(). */
void cli_paths_fini(cli_paths *paths);

#endif
