/* SPDX-License-Identifier: Apache-2.0 */
/* Imports another program's configuration as a job, for import and plan --from.
 */
#ifndef CLI_IMPORT_OPTIONS_H
#define CLI_IMPORT_OPTIONS_H

#include "cluster_options.h"

#include <longhaul/experimental/import.h>

/* An import's source. */
typedef struct cli_import_options {
    uint32_t from; /* lh_import_source */
    const char *cluster, *model, *schedule;
    uint32_t sequence;
} cli_import_options;

/* Option rows; `settings` has a cli_import_options named `source`, and a
 * cli_cluster_options. */
#define CLI_SOURCE_ROWS(settings, says)                                        \
    {.name = "from",                                                           \
     .type = CLI_CHOICE,                                                       \
     .at = offsetof(settings, source.from),                                    \
     .arg = "PROGRAM",                                                         \
     .choice_name = cli_import_source_name,                                    \
     .help = says},                                                            \
        {.name = "cluster",                                                    \
         .letter = 'c',                                                        \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, source.cluster),                             \
         .arg = "JOB",                                                         \
         .example_argument = "job.yaml",                                       \
         .help = "With --from: use the machines and links of the job file "    \
                 "JOB instead of --gpu, --sites, --nodes, --link-gbps and "    \
                 "--latency-ms.",                                              \
         .words = CLI_WORDS_FILES},                                            \
        {.name = "model",                                                      \
         .letter = 'm',                                                        \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, source.model),                               \
         .arg = "NAME|FILE",                                                   \
         .example_argument = "llama3-8b",                                      \
         .help = "With --from torchtitan, nemo or deepspeed: model to use "    \
                 "instead of the configured one: a preset, a Hugging Face "    \
                 "config.json, or a job that contains it.",                    \
         .words = CLI_WORDS_MODELS},                                           \
        {.name = "schedule",                                                   \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, source.schedule),                            \
         .arg = "METHOD",                                                      \
         .example_argument = "zb-h1",                                          \
         .help = "With --from torchtitan, if the configuration has the key "   \
                 "pipeline_parallel_schedule_csv: method that made that CSV "  \
                 "file; auto: assume the fastest method.",                     \
         .words = CLI_WORDS_METHODS},                                          \
        {.name = "sequence",                                                   \
         .type = CLI_COUNT,                                                    \
         .at = offsetof(settings, source.sequence),                            \
         .arg = "N",                                                           \
         .least = 1,                                                           \
         .most = 1 << 26,                                                      \
         .help = "With --from deepspeed: tokens per sequence."},               \
        CLI_CLUSTER_ROWS(settings)

/* Returns the name of the i-th format that can be imported (lh_import_source);
 * NULL after the last. */
const char *cli_import_source_name(uint32_t i);
/* Returns an option on the command line that applies only to imports, without
 * dashes; NULL: none. */
const char *cli_given_import_option(const cli *c);
/* Imports the operand (a file, "-", or an argument list) as a job, whose files
 * are relative to `folder`. Prints deviations in the cost model to standard
 * error. Release with lh_import_free(). */
lh_status cli_import(cli *c, const char *operand,
                     const cli_import_options *source,
                     const cli_cluster_options *machines, const char *folder,
                     lh_import **out);

#endif
