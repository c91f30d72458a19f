/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/profiler_internal.h"

#include "report/diagnosis/json_stream.h"

#include <longhaul/experimental/pipeline.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Known range names. torch/distributed/pipelining/schedules.py of PyTorch 2.15
 * emits "PP:" and the action in its schedules' letters; ScheduleGPipe and its
 * relatives emit "Forward 0". torch/profiler/profiler.py names the step,
 * torch/optim/optimizer.py the optimizer; the process groups' sources name the
 * library and the operation. */
static const struct {
    const char *pattern;
    uint8_t is;
} known[] = {
    {"PP:{chunk}F{microbatch}", LHI_OP_FORWARD},
    {"PP:{chunk}B{microbatch}", LHI_OP_BACKWARD},
    {"PP:{chunk}I{microbatch}", LHI_OP_INPUT},
    {"PP:{chunk}W{microbatch}", LHI_OP_WEIGHT},
    {"PP:{chunk}SEND_F{microbatch}", LHI_OP_FORWARD_SEND},
    {"PP:{chunk}RECV_F{microbatch}", LHI_OP_FORWARD_RECV},
    {"PP:{chunk}SEND_B{microbatch}", LHI_OP_BACKWARD_SEND},
    {"PP:{chunk}RECV_B{microbatch}", LHI_OP_BACKWARD_RECV},
    {"PP:{chunk}WAIT_SEND_F{microbatch}", LHI_RANGE_IGNORED},
    {"PP:{chunk}WAIT_SEND_B{microbatch}", LHI_RANGE_IGNORED},
    {"PP:{chunk}UNSHARD", LHI_RANGE_IGNORED},
    {"PP:{chunk}RESHARD", LHI_RANGE_IGNORED},
    {"PP:{chunk}REDUCE_GRAD", LHI_RANGE_IGNORED},
    {"PP:{chunk}WAIT_REDUCE_GRAD", LHI_RANGE_IGNORED},
    {"PP:*", LHI_RANGE_OTHER},
    {"Forward {microbatch}", LHI_OP_FORWARD},
    {"Backward {microbatch}", LHI_OP_BACKWARD},
    {"ProfilerStep#{step}", LHI_RANGE_STEP},
    {"Optimizer.step#*", LHI_OP_OPTIMIZER},
    {"gloo:send*", LHI_RANGE_SEND},
    {"gloo:recv*", LHI_RANGE_RECV},
    {"gloo:all_reduce*", LHI_RANGE_REDUCE},
    {"gloo:reduce_scatter*", LHI_RANGE_REDUCE},
    {"nccl:send*", LHI_RANGE_SEND},
    {"nccl:recv*", LHI_RANGE_RECV},
    {"nccl:all_reduce*", LHI_RANGE_REDUCE},
    {"nccl:*reduce_scatter*", LHI_RANGE_REDUCE},
};

void lhi_file_events_fini(lhi_file_events *events)
{
    free(events->ranges);
    free(events->kernels);
    free(events->operators);
}

/* --- one event ------------------------------------------------------------ */

/* An event without a usable time. */
typedef struct untimed_event {
    uint64_t number; /* in the file, from 1 */
    const char *reason;
} untimed_event;

/* File reader state. */
typedef struct reading {
    const lhi_profiler *p;
    const char *name;
    int64_t base_ns;             /* offset of all times in the file */
    uint64_t n_items;            /* events read so far */
    uint64_t n_timed, n_untimed; /* used events with and without a time */
    untimed_event first_untimed;
    lhi_profiled_rank *into;
    lhi_file_events *out;
} reading;

/* Reads the number at an event's `key` into *out. Returns NULL on success, else
 * an error text: why[0] if the value is missing or no number, why[1] if it is a
 * string. */
static const char *get_number(const json_t *event, const char *key,
                              const char *const why[2], double *out)
{
    const json_t *value = json_object_get(event, key);
    *out = json_number_value(value);
    return json_is_number(value) ? NULL : why[json_is_string(value)];
}

/* Reads an event's start and end, converted from microseconds to ns. Returns
 * NULL, or why `ts` or `dur` is not a time. */
static const char *get_times(const json_t *event, int64_t *start_ns,
                             int64_t *end_ns)
{
    static const char *const ts[] = {
        "its 'ts' is not a number of microseconds",
        "its 'ts' is a text, not a number of microseconds"};
    static const char *const dur[] = {
        "its 'dur' is not a number of microseconds",
        "its 'dur' is a text, not a number of microseconds"};
    double from, us;
    const char *reason = get_number(event, "ts", ts, &from);
    if (!reason)
        reason = get_number(event, "dur", dur, &us);
    if (reason)
        return reason;
    if (!(fabs(from) <= (double)LHI_MOST_NS / 1000))
        return "its 'ts' is out of range";
    if (!(us >= 0 && us <= (double)LHI_LONGEST_NS / 1000))
        return "its 'dur' is out of range";
    *start_ns = llround(from * 1000);
    *end_ns = *start_ns + llround(us * 1000);
    return NULL;
}

/* Returns a range's kind by the rank map's name patterns, then by the known
 * names; *numbers receives the numbers in its name. */
static uint8_t classify_range(const lhi_profiler *p, const char *name,
                              lhi_name_numbers *numbers)
{
    const lh_rank_map *map = p->map;
    for (uint32_t i = 0; map && i < map->n_names; i++)
        if (lhi_name_matches(map->names[i].pattern, name, numbers)) {
            p->name_used[i] = true;
            return (uint8_t)map->names[i].kind;
        }
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (lhi_name_matches(known[i].pattern, name, numbers))
            return known[i].is;
    return LHI_RANGE_IGNORED;
}

lh_status lhi_profiler_add_range(const lhi_profiler *p, lhi_file_events *events,
                                 const char *file, const char *name,
                                 int64_t start_ns, int64_t end_ns,
                                 lh_error *err)
{
    lhi_file_events *out = events;
    lhi_name_numbers numbers;
    uint8_t is = classify_range(p, name, &numbers);
    if (is == LHI_RANGE_IGNORED)
        return LH_OK;
    if (is == LHI_RANGE_OTHER || numbers.chunk >= INT16_MAX ||
        numbers.microbatch >= LH_MAX_MICROBATCHES) {
        lhi_defect_add(p->remarks, LHI_REMARK_UNKNOWN, 1, "%s: '%.40s'", file,
                       name);
        return LH_OK;
    }
    LHI_TRY(lhi_profiler_grow_array((void **)&out->ranges, out->n_ranges,
                                    &out->ranges_room, sizeof *out->ranges,
                                    err));
    out->ranges[out->n_ranges++] = (lhi_named_range){
        start_ns, end_ns, numbers.chunk, numbers.microbatch, numbers.step, is};
    return LH_OK;
}

/* Returns a number that identifies an event's thread, which is an integer or a
 * text in the file; texts are hashed. */
static int64_t thread_of(const json_t *event)
{
    const json_t *tid = json_object_get(event, "tid");
    const char *text = json_string_value(tid);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    if (!text)
        return json_integer_value(tid);
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return (int64_t)(hash >> 1);
}

/* Returns an operator's autograd sequence number, which its forward and
 * backward share; -1: none. */
static int64_t number_of(const json_t *event)
{
    const json_t *number =
        json_object_get(json_object_get(event, "args"), "Sequence number");
    return json_is_integer(number) && json_integer_value(number) >= 0
               ? json_integer_value(number)
               : -1;
}

/* Adds a GPU kernel or copy, or the CPU call that launched it, to the file's
 * events. Reads from `event` the correlation number that connects both; 0: work
 * without a launch. */
static lh_status add_kernel(reading *r, const json_t *event, lhi_kernel k,
                            lh_error *err)
{
    lhi_file_events *out = r->out;
    const json_t *args = json_object_get(event, "args");
    const json_t *number = json_object_get(args, "correlation");
    if (json_is_integer(number) && json_integer_value(number) > 0)
        k.correlation = (uint64_t)json_integer_value(number);
    else if (k.is_launch)
        return LH_OK; /* launched nothing */
    LHI_TRY(lhi_profiler_grow_array((void **)&out->kernels, out->n_kernels,
                                    &out->kernels_room, sizeof *out->kernels,
                                    err));
    out->kernels[out->n_kernels++] = k;
    return LH_OK;
}

/* Counts the current event as unreadable, with the reason, in the defect
 * list. */
static void report_unreadable(const reading *r, const char *why)
{
    lhi_defect_add(r->p->remarks, LHI_REMARK_UNREAD, 1,
                   "%s: event %" PRIu64 ": %s", r->name, r->n_items, why);
}

/* The categories of events that are used. */
typedef enum category {
    CATEGORY_OTHER,
    CATEGORY_RANGE,
    CATEGORY_OPERATOR,
    CATEGORY_LAUNCH,
    CATEGORY_COPY,
    CATEGORY_KERNEL,
} category;

/* The categories' names; capitals are those of PyTorch up to 1.11, where a
 * step's range is an operator. */
static const struct {
    const char *name;
    category category;
} categories[] = {
    {"user_annotation", CATEGORY_RANGE}, {"cpu_op", CATEGORY_OPERATOR},
    {"cuda_runtime", CATEGORY_LAUNCH},   {"cuda_driver", CATEGORY_LAUNCH},
    {"gpu_memcpy", CATEGORY_COPY},       {"gpu_memset", CATEGORY_COPY},
    {"kernel", CATEGORY_KERNEL},         {"Operator", CATEGORY_OPERATOR},
    {"Runtime", CATEGORY_LAUNCH},        {"Memcpy", CATEGORY_COPY},
    {"Memset", CATEGORY_COPY},           {"Kernel", CATEGORY_KERNEL},
};

/* Returns the category (such as range, kernel or operator) of a profiler event
 * with category name `cat` and name `name`. */
static category find_category(const char *cat, const char *name)
{
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strcmp(categories[i].name, cat) == 0)
            return categories[i].category == CATEGORY_OPERATOR &&
                           strncmp(name, "ProfilerStep#", 13) == 0
                       ? CATEGORY_RANGE
                       : categories[i].category;
    return CATEGORY_OTHER;
}

/* Parses a complete event ("ph": "X"): a named range, a kernel launch, or GPU
 * work; skips all other events. */
static lh_status parse_event(reading *r, const json_t *event, lh_error *err)
{
    const char *ph = json_string_value(json_object_get(event, "ph"));
    const char *cat = json_string_value(json_object_get(event, "cat"));
    const char *name = json_string_value(json_object_get(event, "name"));
    int64_t start_ns, end_ns;
    if (!json_is_object(event)) {
        report_unreadable(r, "is not a map");
        return LH_OK;
    }
    if (!ph || strcmp(ph, "X") != 0 || !cat || !name)
        return LH_OK;
    const category kind = find_category(cat, name);
    if (kind == CATEGORY_OTHER)
        return LH_OK;
    const char *reason = get_times(event, &start_ns, &end_ns);
    if (reason) {
        report_unreadable(r, reason);
        if (r->n_untimed++ == 0)
            r->first_untimed = (untimed_event){r->n_items, reason};
        return LH_OK;
    }
    r->n_timed++;
    if (kind == CATEGORY_RANGE || kind == CATEGORY_OPERATOR)
        LHI_TRY(lhi_profiler_add_operator(
            r->out, name,
            (lhi_cpu_op){.start_ns = start_ns,
                         .end_ns = end_ns,
                         .first_number = number_of(event),
                         .is_range = kind == CATEGORY_RANGE,
                         .thread = thread_of(event)},
            err));
    if (kind == CATEGORY_RANGE)
        return lhi_profiler_add_range(r->p, r->out, r->name, name, start_ns,
                                      end_ns, err);
    if (kind == CATEGORY_OPERATOR)
        return LH_OK;
    return add_kernel(
        r, event,
        (lhi_kernel){.start_ns = start_ns,
                     .end_ns = end_ns,
                     .is_launch = kind == CATEGORY_LAUNCH,
                     .communicates = strncmp(name, "nccl", 4) == 0,
                     .is_copy = kind == CATEGORY_COPY},
        err);
}

/* Checks by substrings, before an event is parsed, whether it can be of a used
 * category; most events are not. */
static bool is_relevant(const lhi_text *text)
{
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
        if (strstr(text->data, categories[i].name))
            return true;
    return false;
}

/* --- the file's rank ------------------------------------------------------ */

/* Adds a process group's rank list to the file's rank; a number out of range
 * becomes LH_NONE. */
static lh_status parse_group(lhi_profiled_rank *into, const json_t *ranks,
                             lh_error *err)
{
    size_t n = json_array_size(ranks);
    uint32_t *list = malloc((n + 1) * sizeof *list);
    lhi_rank_group *groups =
        realloc(into->groups, ((size_t)into->n_groups + 1) * sizeof *groups);
    if (groups)
        into->groups = groups;
    if (!list || !groups) {
        free(list);
        return lhi_fail_nomem(err);
    }
    for (size_t i = 0; i < n; i++) {
        json_int_t rank = json_integer_value(json_array_get(ranks, i));
        list[i] = rank >= 0 && rank < UINT32_MAX ? (uint32_t)rank : LH_NONE;
    }
    groups[into->n_groups++] = (lhi_rank_group){list, (uint32_t)n};
    return LH_OK;
}

/* Parses "distributedInfo": the file's rank, the world size and the process
 * groups. */
static lh_status parse_distributed(lhi_profiled_rank *into, const json_t *info,
                                   lh_error *err)
{
    const json_t *rank = json_object_get(info, "rank");
    const json_t *world = json_object_get(info, "world_size");
    const json_t *groups = json_object_get(info, "pg_config");
    if (json_is_integer(rank) && json_integer_value(rank) >= 0 &&
        json_integer_value(rank) < UINT32_MAX)
        into->rank = (uint32_t)json_integer_value(rank);
    if (json_is_integer(world) && json_integer_value(world) > 0 &&
        json_integer_value(world) < UINT32_MAX)
        into->world = (uint32_t)json_integer_value(world);
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *ranks =
            json_object_get(json_array_get(groups, i), "ranks");
        if (json_array_size(ranks) > 0 && json_array_size(ranks) < UINT32_MAX)
            LHI_TRY(parse_group(into, ranks, err));
    }
    return LH_OK;
}

/* Checks whether the current top-level key equals `key`; the stream keeps keys
 * with their quotes. */
static bool is_key(const lhi_json_stream *items, const char *key)
{
    return items->key.len == strlen(key) + 2 &&
           memcmp(items->key.data + 1, key, strlen(key)) == 0;
}

/* Parses the top-level key with process groups or base time. LH_EINPUT:
 * "longhaul" is not the first key. */
static lh_status parse_key(reading *r, const lhi_json_stream *items,
                           const json_t *value, lh_error *err)
{
    if (is_key(items, "longhaul"))
        return lhi_fail(err, LH_EINPUT,
                        "%s: has the key 'longhaul', but not as its first key, "
                        "as traces of longhaul have it",
                        r->name);
    if (is_key(items, "distributedInfo"))
        return parse_distributed(r->into, value, err);
    if (is_key(items, "baseTimeNanoseconds") && json_is_integer(value) &&
        json_integer_value(value) >= 0 &&
        json_integer_value(value) <= LHI_MOST_NS)
        r->base_ns = json_integer_value(value);
    return LH_OK;
}

/* --- the file ------------------------------------------------------------- */

/* Checks whether the current top-level key is one that parse_key() uses. */
static bool is_relevant_key(const lhi_json_stream *items)
{
    return is_key(items, "longhaul") || is_key(items, "distributedInfo") ||
           is_key(items, "baseTimeNanoseconds");
}

/* Parses the stream's current event or top-level key; counts malformed JSON as
 * unreadable. */
static lh_status parse_item(reading *r, const lhi_json_stream *items,
                            lh_error *err)
{
    json_error_t why;
    r->n_items += items->is_item;
    if (items->is_item ? !is_relevant(&items->value) : !is_relevant_key(items))
        return LH_OK;
    json_t *value = items->too_long
                        ? NULL
                        : lhi_json_load(items->value.data, items->value.len,
                                        JSON_DECODE_ANY, &why);
    lh_status status = LH_OK;
    if (!value)
        report_unreadable(r,
                          items->too_long ? "is longer than 16 MiB" : why.text);
    else if (items->is_item)
        status = parse_event(r, value, err);
    else
        status = parse_key(r, items, value, err);
    json_decref(value);
    return status;
}

/* Reads all events and top-level keys of a file. LH_EINPUT: it has no list of
 * trace events. */
static lh_status read_items(reading *r, lhi_json_stream *items, lh_error *err)
{
    bool more = true;
    while (more) {
        LHI_TRY(lhi_json_stream_next(items, &more, err));
        if (more)
            LHI_TRY(parse_item(r, items, err));
    }
    if (!items->had_list && !items->reason)
        return lhi_fail(
            err, LH_EINPUT,
            "%s: is JSON, but neither a trace of longhaul nor of PyTorch's "
            "profiler, which has a list 'traceEvents'; a recording can also be "
            "a table (CSV, also gzip) with a row for each operation",
            r->name);
    if (items->reason)
        lhi_defect_add(r->p->remarks, LHI_REMARK_CUT, 1, "%s: %s", r->name,
                       items->reason);
    return LH_OK;
}

/* Adds the file's base time to start and end; false if the result exceeds the
 * limits. */
static bool shift_range(const reading *r, int64_t *start_ns, int64_t *end_ns)
{
    *start_ns += r->base_ns;
    *end_ns += r->base_ns;
    return *start_ns >= 0 && *start_ns <= LHI_MOST_NS;
}

/* Converts all times in the file to the rank's clock by adding its base time.
 * Counts events out of range as unreadable; a communication library's range,
 * which can be in two lists, counts only in the first. */
static void add_base(const reading *r)
{
    lhi_file_events *out = r->out;
    size_t kept = 0, n_dropped;
    for (size_t i = 0; i < out->n_ranges; i++)
        if (shift_range(r, &out->ranges[i].start_ns, &out->ranges[i].end_ns))
            out->ranges[kept++] = out->ranges[i];
    n_dropped = out->n_ranges - kept;
    out->n_ranges = kept;
    kept = 0;
    for (size_t i = 0; i < out->n_kernels; i++)
        if (shift_range(r, &out->kernels[i].start_ns, &out->kernels[i].end_ns))
            out->kernels[kept++] = out->kernels[i];
    n_dropped += out->n_kernels - kept;
    out->n_kernels = kept;
    kept = 0;
    for (size_t i = 0; i < out->n_operators; i++)
        if (shift_range(r, &out->operators[i].start_ns,
                        &out->operators[i].end_ns))
            out->operators[kept++] = out->operators[i];
        else
            n_dropped += !out->operators[i].is_range;
    out->n_operators = kept;
    lhi_defect_add(r->p->remarks, LHI_REMARK_UNREAD, n_dropped,
                   "%s: times outside 1970 to 2046", r->name);
}

lh_status lhi_profiler_read_events(const lhi_profiler *p, lhi_gzip_stream *zip,
                                   const char *name, lhi_profiled_rank *into,
                                   lhi_file_events *out, lh_error *err)
{
    reading r = {.p = p, .name = name, .into = into, .out = out};
    lhi_json_stream *items = calloc(1, sizeof *items);
    if (!items)
        return lhi_fail_nomem(err);
    items->zip = zip;
    items->name = name;
    items->list_key = "traceEvents";
    lh_status status = read_items(&r, items, err);
    lhi_json_stream_fini(items);
    free(items);
    if (status == LH_OK && r.n_untimed && r.n_timed == 0)
        return lhi_fail(err, LH_EINPUT,
                        "%s: none of its %" PRIu64
                        " operators, ranges and kernels has a readable time; "
                        "event %" PRIu64
                        ": %s; write 'ts' and 'dur' as numbers, as PyTorch's "
                        "export_chrome_trace() does",
                        name, r.n_untimed, r.first_untimed.number,
                        r.first_untimed.reason);
    if (status == LH_OK)
        add_base(&r);
    return status;
}
