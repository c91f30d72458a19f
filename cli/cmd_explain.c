/* SPDX-License-Identifier: Apache-2.0 */
/* Implements longhaul explain: lists each rank's instructions before a run. */
#include "commands.h"
#include "data_paths.h"
#include "view.h"

#include <inttypes.h>
#include <longhaul/experimental/engine.h>
#include <string.h>

typedef struct settings {
    const char *schedule, *path;
    uint32_t rank, sub_blocks, buffers;
    int64_t staging_ns;
    cli_model model;
} settings;

static const cli_option options[] = {
    {.name = "rank",
     .letter = 'r',
     .type = CLI_COUNT,
     .at = offsetof(settings, rank),
     .arg = "R",
     .preset = "0",
     .most = LH_MAX_DEVICES - 1,
     .help = "Rank to explain; rank R runs device R."},
    CLI_SCHEDULE_ROW(settings),
    CLI_SUB_BLOCKS_ROW(settings, CLI_SUB_BLOCKS),
    CLI_BUFFERS_ROW(settings),
    CLI_RECEIVES_ROW(
        settings,
        "When to post receives: ahead of need (early), when the rank reaches "
        "the pass (late), or late but never delayed by weight-gradient passes "
        "(late-fd); or as in the pipeline or the plan (pipeline)."),
    CLI_COUPLED_ROW(settings),
    CLI_PATH_ROWS(settings, staging_ns,
                  "With --path: time to copy a message to or from host "
                  "memory at each end."),
    CLI_FIFO_ROW(settings),
};

static const cli_example examples[] = {
    {"longhaul explain pipeline.yaml --schedule zb-h1 --rank 3",
     "List the passes, receives and sends of rank 3 under zb-h1."},
    {"longhaul explain plan.json --receives late --json",
     "Print rank 0 of a plan as JSON, without receives posted ahead."},
    {"longhaul explain pipeline.yaml -s 1f1b --coupled 1 --path delegated "
     "--staging 1ms",
     "Show the queue of each message when messages are sent from host memory."},
};

/* Returns the data-parallel operation (all-gather or reduce-scatter bucket)
 * that an instruction executes; NULL: the instruction has no operation number.
 * */
static const lh_dp_op *find_operation(const cli_view *v,
                                      const lh_instruction *in)
{
    return in->op == LH_NONE ? NULL : lh_pipeline_dp_op(v->pipeline, in->op);
}

/* Returns the name of the data-parallel collective that an instruction runs:
 * "all-gather" for forward passes, "reduce-scatter" for backward passes. */
static const char *get_collective_name(const lh_instruction *in)
{
    return in->pass.kind == LH_F ? "all-gather" : "reduce-scatter";
}

/* Formats an instruction into `buffer`: "AGF, all-gather of 84.4 % of chunk 0,
 * bucket 0/2", or the pass. */
static const char *format_instruction(const cli_view *v,
                                      const lh_instruction *in, char *buffer,
                                      size_t room)
{
    const lh_dp_op *op = find_operation(v, in);
    char share[32] = "", bucket[32] = "";
    if (in->stream == LH_STREAM_OFFLOAD) {
        snprintf(buffer, room, "activations of %" PRIu32 "F%" PRIu32 " %s",
                 in->pass.chunk, in->pass.microbatch,
                 in->pass.kind == LH_F ? "leave" : "come back");
        return buffer;
    }
    if (in->stream != LH_STREAM_DATA)
        return lh_pass_format(&in->pass, buffer);
    if (op && op->share > 0 && op->share < 1)
        snprintf(share, sizeof share, " of %.3g %%", 100 * op->share);
    if (op && op->n_buckets > 1)
        snprintf(bucket, sizeof bucket, ", bucket %" PRIu32 "/%" PRIu32,
                 op->bucket, op->n_buckets);
    const char *kind = op ? lh_dp_kind_name(op->kind) : "";
    snprintf(buffer, room, "%s%s%s%s of chunk %" PRIu32 "%s", kind,
             *kind ? ", " : "", get_collective_name(in), share, in->pass.chunk,
             bucket);
    return buffer;
}

/* Returns pass number `at` in a rank's order; NULL: none. */
static const lh_pass *get_pass(const lh_exec *exec, uint32_t rank, uint32_t at)
{
    uint32_t n;
    const lh_instruction *all = lh_exec_instructions(exec, rank, &n);
    for (uint32_t i = 0; at != LH_NONE && i < n; i++)
        if (all[i].stream == LH_STREAM_COMPUTE && all[i].passes_before == at)
            return &all[i].pass;
    return NULL;
}

/* Returns the link that an instruction's data-parallel collective crosses;
 * NULL: the instruction is no such collective, or its link is unknown. */
static const char *find_data_link(const cli_view *v, const lh_instruction *in)
{
    if (in->stream != LH_STREAM_DATA)
        return NULL;
    const lh_chunk *chunk = lh_pipeline_chunk(v->pipeline, in->pass.chunk);
    return lh_pipeline_dp_link(v->pipeline, chunk->device);
}

/* Prints one instruction: predicted time, stream, operation, peer and link. */
static void print_line(cli *c, const cli_view *v, const lh_exec *exec,
                       const lh_instruction *in)
{
    const settings *s = c->settings;
    char what[128], time[CLI_TIME_TEXT], text[LH_PASS_TEXT_SIZE];
    cli_print(c, "  %12s  %-13s %s", cli_time_text(in->predicted_ns, time),
              lh_stream_name(in->stream),
              format_instruction(v, in, what, sizeof what));
    if (in->peer != LH_NONE)
        cli_print(c, " %s rank %" PRIu32, in->slot == LH_NONE ? "to" : "from",
                  in->peer);
    if (in->link != LH_NONE)
        cli_print(c, " over %.60s", lh_exec_link_name(exec, in->link));
    const char *crossed = find_data_link(v, in);
    if (crossed)
        cli_print(c, " over %.200s", crossed);
    const lh_pass *before = get_pass(exec, s->rank, in->needed_by_pass);
    if (before)
        cli_print(c, ", before %s", lh_pass_format(before, text));
    if (in->slot != LH_NONE)
        cli_print(c, ", buffer %" PRIu32, in->slot);
    if (in->link_position != UINT64_MAX)
        cli_print(c, ", turn %" PRIu64, in->link_position);
    if (in->queue != LH_NONE)
        cli_print(c, ", delegated, queue %" PRIu32, in->queue);
    cli_print(c, "\n");
}

/* Checks whether the replicas in `group` run pipeline stage `stage` in the
 * datacenter with this index. */
static bool is_stage_at(const lh_site_group *group, uint32_t stage,
                        uint32_t datacenter)
{
    uint32_t i = 0, end = group->parts[0].stages;
    while (stage >= end && i + 1 < group->n_parts)
        end += group->parts[++i].stages;
    return group->parts[i].datacenter == datacenter;
}

/* Counts a stage's ranks that share ZeRO shards. With hybrid sharding it counts
 * those within one datacenter, and takes the maximum. */
static uint32_t count_shard_ranks(const lh_plan *plan, uint32_t stage)
{
    const lh_layout *l = &plan->best.layout;
    uint32_t most = 0;
    if (l->sharding <= LH_SHARDING_FULL || !l->sites)
        return l->data * l->context;
    for (uint32_t d = 0; d < plan->job->n_datacenters; d++) {
        uint32_t n = 0;
        for (uint32_t g = 0; g < l->sites->n_groups; g++)
            if (is_stage_at(&l->sites->groups[g], stage, d))
                n += l->sites->groups[g].replicas;
        most = n > most ? n : most;
    }
    return most * l->context;
}

/* Returns the ZeRO level (2 or 3) whose communication a stage's passes issue
 * layer by layer, without separate operations; 0: none. */
static uint32_t get_zero_level(const lh_plan *plan, uint32_t stage)
{
    return plan && !plan->best.elastic && plan->best.zero >= 2 &&
                   count_shard_ranks(plan, stage) > 1
               ? plan->best.zero
               : 0;
}

/* Prints the rank's summary and its instructions. */
static lh_status print_text(cli *c, const cli_view *v, const lh_plan *plan,
                            const lh_exec *exec)
{
    const settings *s = c->settings;
    uint32_t n;
    const lh_instruction *in = lh_exec_instructions(exec, s->rank, &n);
    uint32_t counts[LH_N_STREAMS] = {0};
    char time[CLI_TIME_TEXT];
    for (uint32_t i = 0; i < n; i++)
        counts[in[i].stream]++;
    cli_print(c,
              "rank          %" PRIu32 " of %" PRIu32 "\n"
              "schedule      %s, free of deadlock\n"
              "predicted     %s\n"
              "passes        %" PRIu32 "\n"
              "receives      %" PRIu32 " from the previous stage, %" PRIu32
              " from the next, in %" PRIu32 " buffers\n"
              "sends         %" PRIu32 " to the next stage, %" PRIu32
              " to the previous, at most %" PRIu32 " in flight\n",
              s->rank, lh_exec_n_ranks(exec), v->method,
              cli_time_text(lh_exec_predicted_ns(exec), time),
              counts[LH_STREAM_COMPUTE], counts[LH_STREAM_RECEIVE_PREV],
              counts[LH_STREAM_RECEIVE_NEXT],
              lh_exec_receive_slots(exec, s->rank), counts[LH_STREAM_SEND_NEXT],
              counts[LH_STREAM_SEND_PREV],
              lh_exec_sends_in_flight(exec, s->rank));
    if (counts[LH_STREAM_DATA])
        cli_print(c, "data          %" PRIu32 " communications\n",
                  counts[LH_STREAM_DATA]);
    if (counts[LH_STREAM_OFFLOAD])
        cli_print(c, "offload       %" PRIu32 " copies, out and back\n",
                  counts[LH_STREAM_OFFLOAD]);
    if (get_zero_level(plan, s->rank))
        cli_print(c,
                  "in passes     %sa layer's gradients are scattered "
                  "after W\n",
                  get_zero_level(plan, s->rank) > 2
                      ? "a layer's parameters are gathered before F and D, "
                      : "");
    cli_print(c, "\n  %12s  %-13s\n", "predicted", "stream");
    for (uint32_t i = 0; i < n; i++)
        print_line(c, v, exec, &in[i]);
    return LH_OK;
}

/* Adds a data-parallel operation's kind, share of the data, and bucket number,
 * if it has them, to the JSON object `j`. */
static void set_operation(json_t *j, const lh_dp_op *op)
{
    if (op->kind != LH_DP_ANY) {
        json_object_set_new(j, "kind", json_string(lh_dp_kind_name(op->kind)));
        json_object_set_new(j, "share", json_real(op->share));
    }
    if (op->n_buckets > 1) {
        json_object_set_new(j, "bucket", json_integer(op->bucket));
        json_object_set_new(j, "buckets", json_integer(op->n_buckets));
    }
}

/* Returns one instruction of `rank` as JSON; NULL: out of memory. */
static json_t *instruction_json(const cli_view *v, const lh_exec *exec,
                                uint32_t rank, const lh_instruction *in)
{
    char what[64];
    json_t *j =
        json_pack("{s:s, s:I, s:o}", "stream", lh_stream_name(in->stream),
                  "after", (json_int_t)in->passes_before, "predicted_s",
                  cli_seconds(in->predicted_ns));
    if (in->stream == LH_STREAM_DATA) {
        json_object_set_new(j, "chunk", json_integer(in->pass.chunk));
        json_object_set_new(j, "collective",
                            json_string(get_collective_name(in)));
        if (find_operation(v, in))
            set_operation(j, find_operation(v, in));
    } else {
        json_object_set_new(j, "pass",
                            json_string(lh_pass_format(&in->pass, what)));
    }
    const lh_pass *before = get_pass(exec, rank, in->needed_by_pass);
    if (before)
        json_object_set_new(j, "before",
                            json_string(lh_pass_format(before, what)));
    if (in->peer != LH_NONE)
        json_object_set_new(j, "rank", json_integer(in->peer));
    if (in->link != LH_NONE)
        json_object_set_new(j, "link",
                            json_string(lh_exec_link_name(exec, in->link)));
    const char *crossed = find_data_link(v, in);
    if (crossed)
        json_object_set_new(j, "link", json_string(crossed));
    if (in->slot != LH_NONE)
        json_object_set_new(j, "buffer", json_integer(in->slot));
    if (in->link_position != UINT64_MAX)
        json_object_set_new(j, "turn",
                            json_integer((json_int_t)in->link_position));
    if (in->peer != LH_NONE)
        json_object_set_new(
            j, "path",
            json_string(lh_data_path_name(in->queue == LH_NONE
                                              ? LH_DATA_PATH_DIRECT
                                              : LH_DATA_PATH_DELEGATED)));
    if (in->queue != LH_NONE)
        json_object_set_new(j, "queue", json_integer(in->queue));
    return j;
}

/* Returns a JSON list of the collectives that a stage's passes run layer by
 * layer under ZeRO 2 or 3; empty for other ZeRO levels. */
static json_t *intra_pass_json(const lh_plan *plan, uint32_t stage)
{
    uint32_t level = get_zero_level(plan, stage);
    return level > 2   ? json_pack("[s, s]", "all-gather", "reduce-scatter")
           : level > 1 ? json_pack("[s]", "reduce-scatter")
                       : json_array();
}

/* Prints the rank's summary and instructions as JSON. */
static lh_status print_json(cli *c, const cli_view *v, const lh_plan *plan,
                            const lh_exec *exec)
{
    const settings *s = c->settings;
    uint32_t n;
    const lh_instruction *in = lh_exec_instructions(exec, s->rank, &n);
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (json_array_append_new(list,
                                  instruction_json(v, exec, s->rank, &in[i]))) {
            json_decref(list);
            list = NULL;
        }
    if (!list)
        return cli_no_memory(c);
    return cli_put_json(
        c, json_pack("{s:I, s:I, s:s, s:s, s:I, s:o, s:I, s:I, s:o, s:o}",
                     "rank", (json_int_t)s->rank, "ranks",
                     (json_int_t)lh_exec_n_ranks(exec), "schedule", v->method,
                     "receives", cli_receives_of(&s->model, v->pipeline),
                     "coupled", (json_int_t)s->model.coupled, "predicted_s",
                     cli_seconds(lh_exec_predicted_ns(exec)), "receive_buffers",
                     (json_int_t)lh_exec_receive_slots(exec, s->rank),
                     "sends_under_way",
                     (json_int_t)lh_exec_sends_in_flight(exec, s->rank),
                     "in_passes", intra_pass_json(plan, s->rank),
                     "instructions", list));
}

/* Builds the execution plan (each rank's instructions) for the data path that
 * --path chose, direct or delegated, and prints one rank's part. */
static lh_status explain_exec(cli *c, const cli_view *v, const lh_plan *plan,
                              const cli_model *model, const cli_paths *paths)
{
    const settings *s = c->settings;
    lh_exec_options with = {.size = sizeof with,
                            .fifo = model->fifo,
                            .receive_slots = s->buffers,
                            .coupled_queue = model->coupled,
                            .delegation = &paths->delegation};
    lh_exec *exec = NULL;
    if (s->path)
        with.path = paths->links ? LH_DATA_PATH_MIXED : LH_DATA_PATH_DELEGATED;
    cli_set_receives(model, &with.receives, &with.override_receives);
    CLI_TRY(lh_exec_make(v->pipeline, v->schedule, &with, &exec, &c->err));
    lh_status status = c->common.json ? print_json(c, v, plan, exec)
                                      : print_text(c, v, plan, exec);
    lh_exec_free(exec);
    return status;
}

/* Reads the plan or pipeline (`problem`) and the options, finds the schedule
 * for the view `v`, and prints the requested rank's instructions. */
static lh_status explain(cli *c, cli_problem *problem, cli_view *v,
                         cli_paths *paths)
{
    settings *s = c->settings;
    CLI_TRY(cli_problem_read(c, c->operands[0], false, problem));
    const lh_pipeline *p = v->pipeline = cli_problem_pipeline(problem);
    uint32_t n = lh_pipeline_n_devices(p);
    if (s->rank >= n)
        return cli_usage(
            c, "--rank %" PRIu32 ": out of range; ranks are 0 to %" PRIu32,
            s->rank, n - 1);
    if (s->staging_ns && !s->path)
        return cli_usage(c, "--staging requires --path");
    CLI_TRY(cli_paths_check(c, s->path, s->staging_ns, p, &s->model));
    CLI_TRY(cli_paths_read(c, s->path, s->staging_ns, p, &s->model, paths));
    if (paths->pipeline)
        v->pipeline = paths->pipeline;
    CLI_TRY(cli_view_find_schedule(c, v, problem, s->schedule, &s->model,
                                   s->sub_blocks));
    v->pipeline = p;
    return explain_exec(c, v, problem->plan, &s->model, paths);
}

/* Runs 'longhaul explain' and frees its results. */
static lh_status run_explain(cli *c)
{
    cli_problem problem = {0};
    cli_view view = {0};
    cli_paths paths = {0};
    lh_status status = explain(c, &problem, &view, &paths);
    cli_paths_fini(&paths);
    cli_view_fini(&view);
    cli_problem_fini(&problem);
    return status;
}

const cli_command cmd_explain = {
    .name = "explain",
    .operands = "PIPELINE|PLAN",
    .least_operands = 1,
    .most_operands = 1,
    .operand_words = CLI_WORDS_FILES,
    .about = "Show the program that a rank executes for a schedule",
    .description =
        "Lowers a schedule as train does: for each rank the passes in order, "
        "and separate streams of receives, sends and data-parallel "
        "communication. Receives are posted ahead of need, by the predicted "
        "times; each line has its predicted issue time. A schedule that "
        "deadlocks is rejected.",
    .output_help = "Write the results to FILE instead of printing them.",
    CLI_OPTIONS(options),
    CLI_EXAMPLES(examples),
    .settings_size = sizeof(settings),
    .run = run_explain,
};
