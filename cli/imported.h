/* SPDX-License-Identifier: Apache-2.0 */
/* What is run by another program today, as a job: import, plan --from. */
#ifndef CLI_IMPORTED_H
#define CLI_IMPORTED_H

#include "machines.h"

#include <longhaul/import.h>

typedef struct cli_source {
    uint32_t from; /* lh_import_source */
    const char *cluster, *model, *schedule;
} cli_source;

/* Rows of an option table; `settings` has a cli_source called `source`, and a
 * cli_machines. */
#define CLI_SOURCE_ROWS(settings, says)                                        \
    {.name = "from",                                                           \
     .type = CLI_CHOICE,                                                       \
     .at = offsetof(settings, source.from),                                    \
     .arg = "PROGRAM",                                                         \
     .choice_name = cli_source_name,                                           \
     .help = says},                                                            \
        {.name = "cluster",                                                    \
         .letter = 'c',                                                        \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, source.cluster),                             \
         .arg = "JOB",                                                         \
         .like = "job.yaml",                                                   \
         .help = "--from: the machines are those of this job, in place of "    \
                 "--gpu, --sites, --nodes and links.",                         \
         .words = CLI_WORDS_FILES},                                            \
        {.name = "model",                                                      \
         .letter = 'm',                                                        \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, source.model),                               \
         .arg = "NAME|FILE",                                                   \
         .like = "llama3-8b",                                                  \
         .help = "--from torchtitan: the model, in place of the one that it "  \
                 "has by name: a preset, a config.json of Hugging Face, or a " \
                 "job, whose model it is.",                                    \
         .words = CLI_WORDS_MODELS},                                           \
        {.name = "schedule",                                                   \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, source.schedule),                            \
         .arg = "METHOD",                                                      \
         .like = "zb-h1",                                                      \
         .help = "--from torchtitan: what made the order of passes that a "    \
                 "pipeline_parallel_schedule_csv holds; auto: the fastest.",   \
         .words = CLI_WORDS_METHODS},                                          \
        CLI_MACHINE_ROWS(settings)

const char *cli_source_name(uint32_t i);
/* An option that is given and for imports alone, without its dashes; NULL. */
const char *cli_source_given(const cli *c);
/* Imports what the operand is: a file, "-", or the arguments themselves. What
 * is costed otherwise than asked for is said on standard error. Release with
 * lh_import_free(). */
lh_status cli_import(cli *c, const char *operand, const cli_source *source,
                     const cli_machines *machines, const char *folder,
                     lh_import **out);

#endif
