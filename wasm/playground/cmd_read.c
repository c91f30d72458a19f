/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `read JOB` for the playground's editor. Returns JSON: the position
 * of each value (from libyaml, in characters from the start), the job's
 * description or its error, and the words permitted as values. */
#include "commands.h"
#include "inputs.h"

#include <longhaul/experimental/job.h>

#include <string.h>
#include <yaml.h>

/* Limits: nesting depth; capacity for a path and bytes of the input. */
enum { MOST_DEPTH = 64, PATH_ROOM = 1024, MOST_BYTES = 1 << 24 };

/* A map or list being parsed. */
typedef struct level {
    bool is_map, wants_key;
    size_t path_len, n_items;
    size_t key_at; /* position of the next value's key */
    json_t *told;  /* borrowed: its JSON entry, without the end */
} level;

/* Parser state. */
typedef struct walk {
    char path[PATH_ROOM];
    level levels[MOST_DEPTH];
    int depth; /* -1: outside of all */
    json_t *out;
} walk;

/* Begins the path of the next value at the innermost level. */
static void name_value(walk *w)
{
    if (w->depth < 0)
        return;
    level *in = &w->levels[w->depth];
    if (!in->is_map)
        snprintf(w->path + in->path_len, PATH_ROOM - in->path_len, "[%zu]",
                 in->n_items++);
    in->wants_key = true;
}

/* Adds a value's JSON entry and returns it, borrowed; NULL: no memory. */
static json_t *put(walk *w, const yaml_event_t *event, const char *kind,
                   const char *value, bool flow)
{
    const size_t at = event->start_mark.index;
    const bool keyed = w->depth >= 0 && w->levels[w->depth].is_map;
    json_t *told = json_pack(
        "{s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:I}", "path", w->path,
        "kind", kind, "value", value, "flow", flow, "key",
        (json_int_t)(keyed ? w->levels[w->depth].key_at : at), "start",
        (json_int_t)at, "end", (json_int_t)event->end_mark.index, "line",
        (json_int_t)event->start_mark.line + 1, "column",
        (json_int_t)event->start_mark.column);
    return json_array_append_new(w->out, told) == 0 ? told : NULL;
}

static void take_scalar(walk *w, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    level *in = w->depth >= 0 ? &w->levels[w->depth] : NULL;
    if (in && in->is_map && in->wants_key) {
        snprintf(w->path + in->path_len, PATH_ROOM - in->path_len, "%s%s",
                 in->path_len ? "." : "", text);
        in->key_at = event->start_mark.index;
        in->wants_key = false;
        return;
    }
    name_value(w);
    put(w, event, "scalar", text,
        event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE);
}

/* Begins a level; false: too deep. */
static bool begin_level(walk *w, const yaml_event_t *event)
{
    const bool is_map = event->type == YAML_MAPPING_START_EVENT;
    const bool flow =
        is_map ? event->data.mapping_start.style == YAML_FLOW_MAPPING_STYLE
               : event->data.sequence_start.style == YAML_FLOW_SEQUENCE_STYLE;
    name_value(w);
    json_t *told = put(w, event, is_map ? "map" : "list", "", flow);
    if (++w->depth == MOST_DEPTH)
        return false;
    w->levels[w->depth] = (level){.is_map = is_map,
                                  .wants_key = true,
                                  .path_len = strlen(w->path),
                                  .told = told};
    return true;
}

static void end_level(walk *w, const yaml_event_t *event)
{
    json_t *told = w->levels[w->depth--].told;
    if (told)
        json_object_set_new(told, "end",
                            json_integer((json_int_t)event->end_mark.index));
    if (w->depth >= 0)
        w->path[w->levels[w->depth].path_len] = '\0';
}

/* Handles an event; false: stop. */
static bool take_event(walk *w, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        take_scalar(w, event);
        return true;
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        return begin_level(w, event);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        end_level(w, event);
        return true;
    default:
        return event->type != YAML_STREAM_END_EVENT;
    }
}

/* Lists values up to the first invalid YAML, which the job parser reports. */
static json_t *list_values(const char *text, size_t len)
{
    yaml_parser_t parser;
    yaml_event_t event;
    walk w = {.depth = -1, .out = json_array()};
    bool more = w.out && yaml_parser_initialize(&parser);
    if (!more)
        return w.out;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (more && yaml_parser_parse(&parser, &event)) {
        more = take_event(&w, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return w.out;
}

static json_t *list_words(cli_words kind)
{
    json_t *words = json_array();
    for (uint32_t i = 0; cli_word(kind, i); i++)
        json_array_append_new(words, json_string(cli_word(kind, i)));
    return words;
}

static json_t *describe(const lh_job *job)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "model",
                     job->model->name, "parameters",
                     (json_int_t)lh_model_params(job->model), "gpus",
                     (json_int_t)job->n_gpus, "datacenters",
                     (json_int_t)job->n_datacenters, "tokens",
                     (json_int_t)job->training.global_batch *
                         (json_int_t)job->training.sequence,
                     "layers", (json_int_t)job->model->layers, "experts",
                     (json_int_t)job->model->experts);
}

static lh_status run_read(cli *c)
{
    char *text = NULL;
    size_t len;
    lh_job *job = NULL;
    lh_error why;
    CLI_TRY(lh_file_read(c->operands[0], MOST_BYTES, &text, &len, &c->err));
    lh_status status = lh_job_parse(text, len, c->operands[0], ".", &job, &why);
    json_t *object = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "values", list_values(text, len),
        "error", status == LH_OK ? json_null() : json_string(why.text), "job",
        status == LH_OK ? describe(job) : json_null(), "models",
        list_words(CLI_WORDS_MODELS), "gpus", list_words(CLI_WORDS_GPUS),
        "methods", list_words(CLI_WORDS_METHODS));
    lh_job_free(job);
    lh_text_free(text);
    return cli_put_json(c, object);
}

const cli_command cmd_read = {.name = "read",
                              .operands = "JOB",
                              .least_operands = 1,
                              .most_operands = 1,
                              .about = "Say where what stands in a job",
                              .description = "",
                              .run = run_read};
