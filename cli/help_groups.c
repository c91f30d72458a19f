/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the common options for commands with many options, grouped for --help.
 * The other options are for rarer uses: --help-all and the man page have them.
 */
#include "cli.h"

#include <string.h>

static const cli_help_group groups[] = {
    {"plan", "Input", "from sites nodes gpu"},
    {"plan", "Search", "for effort time objective"},
    {"plan", "Questions", "what-if sensitivity pareto jitter"},
    {"plan", "Output", "show top html"},
    {"size", "Requirements", "tokens deadline budget"},
    {"size", "Sizes", "nodes gpu-hour per-gb spot effort"},
    {"size", "Failures", "gpu-mtbf link-mtbf checkpoint restart spares lose"},
    {"train", "Run", "device transport schedule steps"},
    {"train", "Training (--device cpu)",
     "data rate validation checkpoint resume"},
    {"train", "Changing conditions", "events adapt inject"},
    {"train", "Output", "trace html log profile-out"},
    {"simulate", "Schedule", "schedule receives coupled fifo"},
    {"simulate", "Changing conditions", "jitter events steps adapt"},
    {"simulate", "Output", "trace html svg"},
    {"schedule", "Method", "method sub-blocks group warmup"},
    {"schedule", "Search", "time-limit effort gap objective pareto"},
    {"schedule", "Output", "certificate whole html"},
    {"compare", "Comparison", "methods sweep jitter by"},
    {"compare", "Model", "receives coupled fifo"},
    {"compare", "Output", "html"},
    {"export", "Export", "to bundle schedule stages"},
    {"import", "Import", "from cluster gpu sites nodes force"},
    {"init", "Job",
     "model gpu sites nodes latency-ms link-gbps batch sequence"},
    {"init", "Output", "force"},
    {"explain", "Plan", "rank schedule receives coupled path"},
    {"packets", "Link", "gbps latency loss paths senders"},
    {"packets", "Messages", "message messages"},
    {"packets", "Ends", "queue-pairs balancing recovery fec control"},
    {"packets", "Simulation", "seeds sample html"},
    {"diagnose", "Input", "job map"},
    {"diagnose", "Output", "html pipeline-out profile-out"},
};

const cli_help_group *cli_find_help_group(const char *command, uint32_t i)
{
    for (size_t k = 0; k < sizeof groups / sizeof *groups; k++)
        if (strcmp(groups[k].command, command) == 0 && i-- == 0)
            return &groups[k];
    return NULL;
}
