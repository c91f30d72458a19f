/* SPDX-License-Identifier: Apache-2.0 */
/* Builds jobs from cluster options (GPUs, datacenters and the links between
 * them) and checks their output file. */
#ifndef CLI_CLUSTER_OPTIONS_H
#define CLI_CLUSTER_OPTIONS_H

#include "cli.h"

#include <longhaul/experimental/draft.h>

/* Settings of the cluster options. */
typedef struct cli_cluster_options {
    const char *gpu, *nodes, *gpus_per_node;
    const char *sites; /* a number, or cloud regions */
    double link_gbps, latency_ms;
} cli_cluster_options;

/* Option rows; `settings` has a cli_cluster_options named `machines`. */
#define CLI_CLUSTER_ROWS(settings)                                             \
    {.name = "gpu",                                                            \
     .letter = 'g',                                                            \
     .type = CLI_TEXT,                                                         \
     .at = offsetof(settings, machines.gpu),                                   \
     .arg = "NAME[,NAME...]",                                                  \
     .example_argument = "h100-sxm",                                           \
     .preset = "h100-sxm",                                                     \
     .help = "GPU type (see GPUs below): one for all sites, or one for "       \
             "each, such as h100-sxm,a100-80g.",                               \
     .words = CLI_WORDS_GPUS},                                                 \
        {.name = "sites",                                                      \
         .letter = 's',                                                        \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, machines.sites),                             \
         .arg = "N|REGIONS",                                                   \
         .example_argument = "gcp:us-east4,gcp:europe-west4",                  \
         .preset = "1",                                                        \
         .help = "Number of datacenters, each linked to every other. Or "      \
                 "cloud regions, separated by commas, with their latencies "   \
                 "and list prices."},                                          \
        {.name = "nodes",                                                      \
         .letter = 'n',                                                        \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, machines.nodes),                             \
         .arg = "N[,N...]",                                                    \
         .example_argument = "16",                                             \
         .help = "Nodes per datacenter: 16, or 16,8 for two datacenters. "     \
                 "Default: a power of two that fits the model."},              \
        {.name = "gpus-per-node",                                              \
         .type = CLI_TEXT,                                                     \
         .at = offsetof(settings, machines.gpus_per_node),                     \
         .arg = "N[,N...]",                                                    \
         .example_argument = "8",                                              \
         .help = "GPUs per node: one number for all datacenters, or one for "  \
                 "each. Default: as vendors sell nodes with this GPU."},       \
        {.name = "link-gbps",                                                  \
         .type = CLI_REAL_ABOVE,                                               \
         .at = offsetof(settings, machines.link_gbps),                         \
         .arg = "GBPS",                                                        \
         .example_argument = "800",                                            \
         .preset = "3200",                                                     \
         .high = 1e9,                                                          \
         .help = "Bandwidth between two datacenters in 10^9 bit/s per "        \
                 "direction, "                                                 \
                 "for all traffic of the job."},                               \
    {                                                                          \
        .name = "latency-ms", .type = CLI_REAL,                                \
        .at = offsetof(settings, machines.latency_ms), .arg = "MS",            \
        .example_argument = "7.5", .preset = "20", .low = 1e-6, .high = 3.6e6, \
        .help = "One-way latency between two datacenters, in milliseconds."    \
    }

/* Option row; `settings` has a `force`. */
#define CLI_FORCE_ROW(settings)                                                \
    {                                                                          \
        .name = "force", .letter = 'f', .type = CLI_FLAG,                      \
        .at = offsetof(settings, force),                                       \
        .help = "Overwrite an existing FILE of -o."                            \
    }

/* Fails with a usage error unless `is_known`. The error states that option
 * --`option` has the unknown value `name`, and lists the NULL-terminated preset
 * names `names`, with the most similar one first. */
lh_status cli_check_preset(cli *c, const char *option, const char *name,
                           bool is_known, const char *const *names);
/* Fails with a usage error if an option for the links between sites is given
 * although the options define fewer than two sites. */
lh_status cli_check_links(cli *c, const cli_cluster_options *machines);
/* Fills in the sites (zeroed before) and the links between them from the
 * options, for drafting a job. */
lh_status cli_build_cluster(cli *c, const cli_cluster_options *machines,
                            lh_draft_site sites[LH_MAX_DATACENTERS],
                            lh_draft_options *out);

/* Returns the folder of the -o file, in `folder` (`room` bytes) or static
 * storage; "." without a folder in its path. Relative paths to model files
 * refer to it. */
const char *cli_output_folder(const cli *c, char *folder, size_t room);
/* Fails if the -o file exists and --force (`force`) is not given. */
lh_status cli_check_not_existing(cli *c, bool force);

#endif
