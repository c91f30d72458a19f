/* SPDX-License-Identifier: Apache-2.0 */
/* --path: which messages are delegated. */
#ifndef CLI_PATHS_H
#define CLI_PATHS_H

#include "inputs.h"

#include <longhaul/delegate.h>

/* Rows of an option table; `settings` has a const char *path, and an int64_t
 * where `staging` is. */
#define CLI_PATH_ROWS(settings, staging_member, says)                          \
    {.name = "path",                                                           \
     .type = CLI_TEXT,                                                         \
     .at = offsetof(settings, path),                                           \
     .arg = "delegated|LINK=delegated,...",                                    \
     .like = "delegated",                                                      \
     .help = "Which messages are copied to host memory and sent from there, "  \
             "so that no pass waits for them: all, or those of links "         \
             "(0-1=delegated both ways, west>east=delegated one way)."},       \
    {                                                                          \
        .name = "staging", .type = CLI_TIME,                                   \
        .at = offsetof(settings, staging_member), .arg = "TIME",               \
        .like = "1ms", .help = says                                            \
    }

typedef struct cli_paths {
    lh_delegation delegation;
    bool *links;           /* of it; NULL: all messages */
    lh_pipeline *pipeline; /* as it is with these paths; NULL: none is given */
} cli_paths;

/* Whether sends or receives block. Else all paths are one where copies take no
 * time. */
bool cli_paths_differ(const cli_model *model, const lh_pipeline *pipeline);
/* Wrong usage where --path (`text`; NULL: it is not given) would change nothing
 * of a pipeline, on a device where copies take what --staging says. */
lh_status cli_paths_check(cli *c, const char *text, int64_t staging_ns,
                          const lh_pipeline *pipeline, const cli_model *model);
/* Reads the option (NULL: none) for a pipeline, and has `model` say how
 * messages go then. Release with cli_paths_fini(), also after a failure. */
lh_status cli_paths_read(cli *c, const char *text, int64_t staging_ns,
                         const lh_pipeline *pipeline, cli_model *model,
                         cli_paths *out);
/* Likewise with out->delegation, which is there. */
lh_status cli_paths_take(cli *c, const lh_pipeline *pipeline, cli_model *model,
                         cli_paths *out);
void cli_paths_fini(cli_paths *paths);

#endif
