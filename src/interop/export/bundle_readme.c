/* SPDX-License-Identifier: Apache-2.0 */
/* Generates a bundle's README.md. */
#include "interop/export/bundle.h"

#include <inttypes.h>
#include <string.h>

static const double gib = 1024.0 * 1024 * 1024;

static void put_start(lhi_text *out, const lhi_bundle *b)
{
    const lh_plan *plan = b->plan;
    uint32_t n = plan->job->n_datacenters;
    lhi_text_printf(out, "# A job for %s\n\nMade by longhaul ",
                    b->form->display_name
                        ? b->form->display_name
                        : lh_target_display_name(b->form->planner_target));
    lhi_text_add_escaped(out, plan->version, SIZE_MAX);
    lhi_text_puts(out, " from the plan of ");
    lhi_text_add_escaped(out, plan->name, SIZE_MAX);
    lhi_text_printf(out,
                    ": %" PRIu32 " GPUs, %" PRIu32 " hosts.\n\n"
                    "| file | what it is |\n| --- | --- |\n",
                    lh_plan_gpus(plan),
                    lhi_launches_hosts_before(plan, b->launches, n));
    if (b->form->write)
        lhi_text_printf(out, "| %s | %s |\n", b->form->file_name,
                        b->form->has_arguments
                            ? "the program's arguments, a line each"
                            : "what the program runs");
    if (b->form->has_schedule)
        lhi_text_puts(out, "| schedule.csv | the order of passes |\n"
                           "| stages.json | which modules and which rank each "
                           "stage has |\n");
    lhi_text_puts(
        out,
        "| hosts-*.txt | the hosts of each site, to be filled in |\n"
        "| nodes.txt | which host starts which ranks |\n"
        "| launch.sh | starts the ranks of the host that it runs on |\n"
        "| job.sbatch | the same with Slurm |\n\n"
        "## Starting\n\n"
        "Put the names of the hosts into hosts-*.txt, in an order in which "
        "neighbours are\nnear each other; then `./launch.sh ARGUMENTS` on each "
        "of them, or\n`sbatch --nodelist=... job.sbatch ARGUMENTS`, for which "
        "job.sbatch says which nodes\neach site has. ARGUMENTS are what a plan "
        "knows nothing of: ");
    lhi_text_puts(out, b->form->inputs);
}

static void put_order(lhi_text *out, const lh_plan *plan)
{
    const lh_layout *l = &plan->best.layout;
    bool data = l->outermost == LH_OUTERMOST_DATA && l->pipeline > 1;
    lhi_text_puts(out, "\n## Ranks\n\n");
    lhi_text_printf(out,
                    "From what changes slowest to what changes fastest: %s "
                    "%" PRIu32 ", %s %" PRIu32 ", context %" PRIu32
                    ",\ntensor %" PRIu32 ".",
                    data ? "data" : "pipeline", data ? l->data : l->pipeline,
                    data ? "pipeline" : "data", data ? l->pipeline : l->data,
                    l->context, l->tensor);
    if (l->expert > 1)
        lhi_text_printf(out,
                        " Experts are shared by %" PRIu64
                        " consecutive ranks of a stage.",
                        lh_layout_expert_block(l));
    lhi_text_puts(out, "\n");
}

static const char *source_of(const lh_plan *plan)
{
    return strcmp(plan->cost_source, "profile") == 0
               ? "Passes are as measured (the job's profile)"
           : strcmp(plan->cost_source, "mixed") == 0
               ? "Passes are measured where the job's profile has them, else "
                 "modelled"
           : strcmp(plan->cost_source, "efficiency") == 0
               ? "Passes are modelled with the job's efficiency"
           : strcmp(plan->cost_source, "part-efficiency") == 0
               ? "Passes are modelled, in part with the job's efficiency; none "
                 "is measured"
               : "Passes are modelled, none is measured: a profile of the job "
                 "makes it surer";
}

static void put_memory(lhi_text *out, const lh_plan *plan)
{
    lhi_text_puts(
        out, "\nMemory of a GPU, GiB:\n\n| pipeline rank | may use "
             "| holds | parameters | gradients | optimizer | activations | "
             "buffers | passing |\n"
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- "
             "|\n");
    for (uint32_t i = 0; i < plan->n_ranks; i++) {
        const lh_plan_memory *m = &plan->rank_memory[i];
        const int64_t parts[] = {m->parameters_bytes, m->gradients_bytes,
                                 m->optimizer_bytes,  m->activations_bytes,
                                 m->buffers_bytes,    m->temporary_bytes};
        int64_t all = 0;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            all += parts[k];
        lhi_text_printf(
            out, "| %" PRIu32 " | %.1f | %.1f |", m->rank,
            (double)lh_pipeline_memory_limit(plan->pipeline, m->rank) / gib,
            (double)all / gib);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            lhi_text_printf(out, " %.1f |", (double)parts[k] / gib);
        lhi_text_puts(out, "\n");
    }
}

static void put_prediction(lhi_text *out, const lhi_bundle *b)
{
    const lh_plan *plan = b->plan;
    const lh_choice *best = &plan->best;
    double gap = lh_plan_gap(plan);
    lhi_text_printf(out, "\n## What is predicted\n\nAn iteration takes %.3f s",
                    (double)best->iteration_ns / 1e9);
    if (b->cost_ns)
        lhi_text_printf(out,
                        ", and %.3f s in PyTorch, which knows neither parts of"
                        "\nweight-gradient passes nor orders of messages",
                        (double)(best->iteration_ns + b->cost_ns) / 1e9);
    lhi_text_printf(out, ".\n%s.\n", source_of(plan));
    if (gap >= 0)
        lhi_text_printf(out,
                        "By the same costs no plan of this job is more than "
                        "%.1f %% faster.\n",
                        100 * gap);
    lhi_text_printf(out,
                    "The fullest GPU holds %.1f GiB of the %.1f that a plan "
                    "may use there.\n",
                    (double)best->peak_memory_bytes / gib,
                    (double)best->memory_limit_bytes / gib);
    if (plan->n_ranks)
        put_memory(out, plan);
}

static void put_checks(lhi_text *out, const lhi_bundle *b)
{
    const lh_choice *best = &b->plan->best;
    lhi_text_printf(
        out,
        "\n## What to check on the first iteration\n\n"
        "1. Where ranks are: let each print its rank, host and GPU, and "
        "compare with\n   nodes.txt; rank 0 is on the first line. A rank at "
        "another site sends what the\n   plan keeps inside one over the "
        "network between sites.\n"
        "2. Memory: `torch.cuda.max_memory_allocated()` of a rank of each "
        "stage, beside what\n   is predicted above. More than a plan may use "
        "there was not planned with.\n"
        "3. Time: the third iteration or a later one, beside %.3f s. The first "
        "ones\n   build connections and kernels. Where it differs, `longhaul "
        "report --predicted\n   --measured` says which passes do, and a "
        "profile "
        "of the job takes them in.\n",
        (double)(best->iteration_ns + b->cost_ns) / 1e9);
}

/* Adds text lines as list items. */
static void put_remarks(lhi_text *out, const char *remarks)
{
    lhi_text_puts(out, "\n## Remarks of the export\n\n");
    for (const char *line = remarks; *line;) {
        size_t len = strcspn(line, "\n");
        size_t from = line[0] == '#' ? 1 + (line[1] == ' ') : 0;
        lhi_text_puts(out, "- ");
        lhi_text_add(out, line + from, len - from);
        lhi_text_puts(out, "\n");
        line += len + (line[len] == '\n');
    }
}

void lhi_bundle_add_readme(lhi_text *out, const lhi_bundle *b)
{
    put_start(out, b);
    put_order(out, b->plan);
    put_prediction(out, b);
    put_checks(out, b);
    if (*b->remarks)
        put_remarks(out, b->remarks);
}
