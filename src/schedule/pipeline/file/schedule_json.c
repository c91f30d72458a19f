/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules inside other files: `rows` and `link_orders`, the lines of the two
 * CSV files as lists of strings. */
#include "schedule/pipeline/file/pipe_file.h"

#include "base/text.h"

#include <longhaul/experimental/schedule.h>

#include <string.h>

/* Returns a text's lines as a JSON string list; NULL: out of memory. */
static json_t *lines_to_json(const char *text)
{
    json_t *list = json_array();
    while (list && *text) {
        size_t len = strcspn(text, "\n");
        if (json_array_append_new(list, json_stringn(text, len)) != 0) {
            json_decref(list);
            return NULL;
        }
        text += len + (text[len] == '\n');
    }
    return list;
}

json_t *lhi_schedule_rows_to_json(const lh_schedule *schedule)
{
    char *text;
    if (lh_schedule_format(schedule, &text, NULL, NULL) != LH_OK)
        return NULL;
    json_t *list = lines_to_json(text);
    lh_text_free(text);
    return list;
}

json_t *lhi_schedule_links_to_json(const lh_schedule *schedule)
{
    char *text;
    if (lhi_schedule_format_links(schedule, &text, NULL, NULL) != LH_OK)
        return NULL;
    json_t *list = text ? lines_to_json(text) : json_null();
    lh_text_free(text);
    return list;
}

/* Appends the rows in a JSON list to `text`, one line each; fails for an item
 * that is not one row. */
static lh_status join_lines(const lhi_doc *doc, const lhi_node *list,
                            lhi_text *text, lh_error *err)
{
    LHI_TRY(lhi_node_check_list(doc, list, err));
    for (const lhi_node *node = list->first; node; node = node->next) {
        if (node->kind != LHI_SCALAR || strchr(node->text, '\n'))
            return lhi_doc_fail(doc, node, err, LH_EINPUT,
                                "must be one row of a schedule");
        lhi_text_puts(text, node->text);
        lhi_text_puts(text, "\n");
    }
    return text->failed ? lhi_fail_nomem(err) : LH_OK;
}

/* Parses a JSON schedule's rows and link orders; rows and links are scratch.
 * Errors carry the file position. */
static lh_status parse_lines(const lhi_doc *doc, const lhi_node *map,
                             lhi_text *rows, lhi_text *links, lh_schedule **out,
                             lh_error *err)
{
    const lhi_node *node;
    LHI_TRY(lhi_node_require(doc, map, "rows", &node, err));
    LHI_TRY(join_lines(doc, node, rows, err));
    if ((node = lhi_node_find(map, "link_orders")))
        LHI_TRY(join_lines(doc, node, links, err));
    lh_status status =
        lhi_schedule_parse_both(rows->data ? rows->data : "", rows->len,
                                links->data, links->len, doc->file, out, err);
    if (status != LH_OK)
        lhi_fail_add_context(err, "%s:%u: schedule", doc->file, map->line);
    return status;
}

lh_status lhi_schedule_from_map(const lhi_doc *doc, const lhi_node *map,
                                lh_schedule **out, lh_error *err)
{
    lhi_text rows = {0}, links = {0};
    lh_status status = parse_lines(doc, map, &rows, &links, out, err);
    lhi_text_fini(&rows);
    lhi_text_fini(&links);
    return status;
}
