/* SPDX-License-Identifier: Apache-2.0 */
/* torchtitan's keys as given. Options follow tyro: "--section.key value" or
 * "--section.key=value", with - or _ in names, "--section.no-key" for false,
 * and "activation-checkpoint:full" to select one of several kinds; the last one
 * counts. TOML follows tomllib, with values of each key's type. */
#include "interop/import/torchtitan_internal.h"

#include "format/document/toml.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of "--"; maximum length of an option's name in bytes. */
enum { DASHES = 2, MOST_NAME = 160 };

static const struct {
    const char *shown; /* with dashes, as options spell it */
    lhi_titan_type type;
    lhi_titan_form form;
} rows[] = {
#define LHI_TITAN_ROW(key, name, type, form)                                   \
    {"--" name, LHI_TITAN_##type, LHI_TITAN_##form},
    LHI_TITAN_LIST(LHI_TITAN_ROW)
#undef LHI_TITAN_ROW
};

/* The reader's state. */
typedef struct reader {
    lhi_imported_job *in;
    lhi_titan *t;
    bool usual; /* values are defaults: keep those already given */
    const lhi_command_line *words;
    uint32_t i; /* index of the next word */
} reader;

/* Returns the torchtitan version that reads this form of input (command line or
 * TOML), for messages. */
static const char *find_program_version(lhi_titan_form form)
{
    return form == LHI_TITAN_TOML ? "torchtitan 0.2" : "torchtitan 0.3";
}

/* Returns the prefix before key names in messages: "--" for command-line
 * options, "" for TOML keys. */
static const char *find_key_prefix(lhi_titan_form form)
{
    return form == LHI_TITAN_TOML ? "" : "--";
}

/* --- lookup --------------------------------------------------------------- */

/* A valid key in this form: one of the rows, or one without a counterpart. */
typedef struct found_key {
    uint32_t row; /* LHI_N_TITAN_KEYS: none */
    const lhi_titan_unmapped *unread;
    lhi_titan_type type;
} found_key;

/* Finds a torchtitan key by name: among those that a job represents (out->row),
 * then among the others (out->unread). Returns false if this form of input has
 * no such key. */
static bool find_key(const char *name, lhi_titan_form form, found_key *out)
{
    *out = (found_key){.row = LHI_N_TITAN_KEYS};
    for (uint32_t i = 0; i < LHI_N_TITAN_KEYS; i++)
        if ((rows[i].form & form) &&
            lhi_titan_matches(rows[i].shown + DASHES, name)) {
            out->row = i;
            out->type = rows[i].type;
            return true;
        }
    out->unread = lhi_titan_find_unmapped(name, form);
    if (out->unread)
        out->type = out->unread->type;
    return out->unread != NULL;
}

/* Fails because the key `name` in line `line` is unknown; the message suggests
 * a similar key, or names the other form of input that has it. */
static lh_status reject_unknown(const reader *r, const char *name,
                                uint32_t line, lh_error *err)
{
    const lhi_titan_form form = r->t->form;
    const lhi_titan_form other =
        form == LHI_TITAN_TOML ? LHI_TITAN_OPTIONS : LHI_TITAN_TOML;
    const char *const dashes = find_key_prefix(form);
    found_key there;
    char shown[MOST_NAME];
    lhi_doc_sanitise_text(name, shown, sizeof shown);
    for (uint32_t i = 0; i < LHI_N_TITAN_KEYS; i++)
        if ((rows[i].form & form) &&
            lhi_is_similar_name(rows[i].shown + DASHES, name))
            return lhi_fail(err, LH_EINPUT,
                            "%s:%u: %s has no key %s%s; did you mean %s%s?",
                            r->t->file, line, find_program_version(form),
                            dashes, shown, dashes, rows[i].shown + DASHES);
    if (find_key(name, other, &there))
        return lhi_fail(err, LH_EINPUT,
                        "%s:%u: %s has no key %s%s, only %s has; remove it to "
                        "plan without it",
                        r->t->file, line, find_program_version(form), dashes,
                        shown,
                        other == LHI_TITAN_TOML ? "torchtitan 0.2 TOML"
                                                : find_program_version(other));
    return lhi_fail(err, LH_EINPUT,
                    "%s:%u: %s has no key %s%s, so its effect on time and "
                    "memory is unknown; remove it to plan without it",
                    r->t->file, line, find_program_version(form), dashes,
                    shown);
}

/* --- storage -------------------------------------------------------------- */

/* Checks whether `given`, the value of a key that a job cannot represent, is
 * the one with which the key has no effect. */
static bool is_ignored_value(const lhi_titan_unmapped *u,
                             const lhi_input_value *given)
{
    return u->ignored_value &&
           (given->n == 0 ? !*u->ignored_value
                          : given->n == 1 && strcmp(given->values[0].text,
                                                    u->ignored_value) == 0);
}

/* Treats a key that a job cannot represent, by its table entry `u`: rejects it,
 * notes its effect, or records it as ignored. */
static lh_status store_unmapped(reader *r, const lhi_titan_unmapped *u,
                                const char *name, const lhi_input_value *given,
                                lh_error *err)
{
    lhi_titan *t = r->t;
    const bool usual = is_ignored_value(u, given);
    const size_t most = sizeof t->fp8_notes / sizeof *t->fp8_notes;
    if (u->kind == LHI_TITAN_REFUSED && !usual)
        return lhi_fail(err, LH_EUNSUPPORTED, "%s:%u: %s%s %s", t->file,
                        given->line, find_key_prefix(t->form), name, u->why);
    if (u->kind == LHI_TITAN_FP8_NOTED && t->n_fp8_notes < most)
        t->fp8_notes[t->n_fp8_notes++] = u;
    else if (u->kind == LHI_TITAN_NOTED && !usual)
        lhi_import_note(r->in, "%s%s: %s", find_key_prefix(t->form), name,
                        u->why);
    else
        lhi_import_ignore(r->in, name);
    return LH_OK;
}

/* Checks that a parameter group's optimizer is AdamW or Adam, since each group
 * names its own. */
static lh_status check_group_optimizer(const reader *r,
                                       const lhi_input_value *given,
                                       lh_error *err)
{
    const lhi_input_key key = {r->t->file, "--optimizer.param-groups", given};
    static const char *const names[] = {"AdamW", "Adam", NULL};
    uint32_t which;
    return lhi_input_value_get_choice(key, names, &which, err);
}

/* Stores a torchtitan key's value. A key that a job cannot represent is noted
 * or rejected. While a configuration's defaults are read, keeps values that the
 * user's input gives. */
static lh_status store_key(reader *r, const found_key *k, const char *name,
                           const lhi_input_value *given, lh_error *err)
{
    if (k->row == LHI_N_TITAN_KEYS)
        return store_unmapped(r, k->unread, name, given, err);
    if (k->row == LHI_TITAN_OPTIMIZER_GROUP)
        return check_group_optimizer(r, given, err);
    if (!r->usual || !r->t->keys[k->row].is_given)
        r->t->keys[k->row] = *given;
    return LH_OK;
}

/* Allocates the array of `n` texts of value `given`, which the caller fills in;
 * NULL if memory runs out. */
static lhi_command_line_word *allocate_values(reader *r, lhi_input_value *given,
                                              uint32_t n)
{
    lhi_command_line_word *values =
        LHI_NEW(r->in->mem, lhi_command_line_word, n + (size_t)1);
    given->is_given = true;
    given->n = n;
    given->values = values;
    return values;
}

/* --- options -------------------------------------------------------------- */

/* Checks whether a word is an option's name. A negative number is a value. */
static bool is_name(const char *word)
{
    return word[0] == '-' && word[1] && !isdigit((unsigned char)word[1]) &&
           word[1] != '.';
}

/* Checks whether a word selects the activation checkpoint mode, as in
 * activation-checkpoint:full. */
static bool is_checkpoint_mode(const char *word)
{
    return strncmp(word, "activation", 10) == 0 && strchr(word, ':');
}

/* Removes "no_" from the beginning of a name's last part. Returns false if it
 * is not there. */
static bool strip_no_prefix(char *name)
{
    char *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    if (strncmp(last, "no_", 3) != 0)
        return false;
    memmove(last, last + 3, strlen(last + 3) + 1);
    return true;
}

/* Converts a word such as "--a.b-c=1" to the name "a.b_c". *value receives the
 * text after '=', or NULL.
 * LH_EINPUT: the word does not begin with --. */
static lh_status read_name(const reader *r, const lhi_command_line_word *word,
                           char name[MOST_NAME], const char **value,
                           lh_error *err)
{
    const char *text = word->text;
    if (strncmp(text, "--", DASHES) != 0 || !text[DASHES])
        return lhi_fail(err, LH_EINPUT,
                        "%s:%u: '%.60s' is neither an option nor a value of "
                        "one; options begin with --",
                        r->t->file, word->line, text);
    const size_t len = strcspn(text + DASHES, "=");
    *value = text[DASHES + len] ? text + DASHES + len + 1 : NULL;
    snprintf(name, MOST_NAME, "%.*s",
             (int)(len < MOST_NAME ? len : MOST_NAME - 1), text + DASHES);
    for (char *at = name; *at; at++)
        *at = *at == '-' ? '_' : *at;
    return LH_OK;
}

/* Reads an option's values into `given`: the text `behind` the `=` unless NULL,
 * else as many following words as the option takes. LH_EINPUT: a value is
 * missing. */
static lh_status read_values(reader *r, const found_key *k, const char *name,
                             const char *behind, lhi_input_value *given,
                             lh_error *err)
{
    const bool one = k->type != LHI_TITAN_LISTS && k->type != LHI_TITAN_ANY;
    uint32_t n = behind ? 1 : 0;
    if (behind) {
        lhi_command_line_word *value = allocate_values(r, given, 1);
        if (!value)
            return lhi_fail_nomem(err);
        *value = (lhi_command_line_word){.text = behind, .line = given->line};
    } else {
        given->values = r->words->all + r->i;
        while (r->i < r->words->n && (!one || n < 1) &&
               !is_name(r->words->all[r->i].text) &&
               !is_checkpoint_mode(r->words->all[r->i].text)) {
            r->i++;
            n++;
        }
        given->n = n;
    }
    if (one && n != 1)
        return lhi_fail(err, LH_EINPUT, "%s:%u: --%s requires a value",
                        r->t->file, given->line, name);
    return LH_OK;
}

/* Sets `given` to true or false (`is`): the option's name without or with the
 * prefix no-. LH_EINPUT: the option has a value, `behind` the `=` (NULL: none).
 * */
static lh_status read_bool(reader *r, const char *name, const char *behind,
                           bool is, lhi_input_value *given, lh_error *err)
{
    lhi_command_line_word *value = allocate_values(r, given, 1);
    if (!value)
        return lhi_fail_nomem(err);
    if (behind)
        return lhi_fail(err, LH_EINPUT,
                        "%s:%u: --%s takes no value; for false, write no- "
                        "before the last part of its name",
                        r->t->file, given->line, name);
    *value = (lhi_command_line_word){.text = is ? "true" : "false",
                                     .line = given->line};
    return LH_OK;
}

/* Reads the option at word r->i with its values (--section.name VALUE...), or
 * the word that selects the activation checkpoint mode
 * (activation-checkpoint:full), and stores it in r->t. Advances r->i past it.
 * LH_EINPUT: unknown option or missing value. */
static lh_status read_option(reader *r, lh_error *err)
{
    const lhi_command_line_word *word = &r->words->all[r->i++];
    char name[MOST_NAME];
    const char *behind;
    found_key k;
    lhi_input_value given = {.is_given = true,
                             .line = r->usual ? 0 : word->line};
    if (is_checkpoint_mode(word->text)) {
        lhi_command_line_word *value = allocate_values(r, &given, 1);
        if (!value)
            return lhi_fail_nomem(err);
        *value = (lhi_command_line_word){.text = strchr(word->text, ':') + 1,
                                         .line = word->line};
        if (!r->usual || !r->t->keys[LHI_TITAN_AC_MODE].is_given)
            r->t->keys[LHI_TITAN_AC_MODE] = given;
        return LH_OK;
    }
    LHI_TRY(read_name(r, word, name, &behind, err));
    char plain[MOST_NAME];
    memcpy(plain, name, sizeof plain);
    bool found = find_key(name, LHI_TITAN_OPTIONS, &k), no = false;
    if (!found && strip_no_prefix(plain) &&
        find_key(plain, LHI_TITAN_OPTIONS, &k) && k.type == LHI_TITAN_TRUTH)
        found = no = true;
    /* The activation checkpoint mode is selected by its own word only. */
    if (!found || k.row == LHI_TITAN_AC_MODE)
        return reject_unknown(r, name, word->line, err);
    if (k.type == LHI_TITAN_TRUTH)
        LHI_TRY(read_bool(r, name, behind, !no, &given, err));
    else
        LHI_TRY(read_values(r, &k, name, behind, &given, err));
    return store_key(r, &k, no ? plain : name, &given, err);
}

/* Reads the GPU count from the value of the launcher's variable NGPU.
 * LH_EINPUT: it is invalid. */
static lh_status read_gpus(reader *r, const lhi_command_line_word *word,
                           const char *text, lh_error *err)
{
    char *end;
    const long gpus = strtol(text, &end, 10);
    if (end == text || *end || gpus < 1 || gpus > (long)LH_MAX_GPUS)
        return lhi_fail(err, LH_EINPUT,
                        "%s:%u: NGPU: '%.40s' is not a valid number of GPUs",
                        r->t->file, word->line, text);
    r->t->gpus = (uint32_t)gpus;
    return LH_OK;
}

/* Returns the text after `name`, such as "NGPU=", if the word begins with it;
 * else NULL. */
static const char *find_variable_value(const lhi_command_line_word *word,
                                       const char *name)
{
    const size_t len = strlen(name);
    return strncmp(word->text, name, len) == 0 ? word->text + len : NULL;
}

/* Reads GPUs, module and configuration from a launcher, and skips it. Example:
 * "NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh", or torchrun. */
static lh_status read_launcher(reader *r, lh_error *err)
{
    const uint32_t n = lhi_command_line_find_arguments(r->words);
    r->t->gpus = lhi_command_line_count_gpus(r->words, n);
    for (uint32_t i = 0; i < n; i++) {
        const lhi_command_line_word *word = &r->words->all[i];
        const char *module = find_variable_value(word, "MODULE=");
        const char *config = find_variable_value(word, "CONFIG=");
        const char *gpus = find_variable_value(word, "NGPU=");
        if (find_variable_value(word, "CONFIG_FILE="))
            return lhi_fail(err, LH_EINPUT,
                            "%s:%u: CONFIG_FILE names a torchtitan 0.2 "
                            "configuration file; import that file instead",
                            r->t->file, word->line);
        lhi_input_value given = {.line = word->line};
        lhi_command_line_word *value = allocate_values(r, &given, 1);
        if (!value)
            return lhi_fail_nomem(err);
        if (gpus)
            LHI_TRY(read_gpus(r, word, gpus, err));
        if (!module && !config)
            continue;
        *value = (lhi_command_line_word){.text = module ? module : config,
                                         .line = word->line};
        r->t->keys[module ? LHI_TITAN_MODULE : LHI_TITAN_CONFIG] = given;
    }
    r->i = n;
    if (n > 0)
        lhi_import_ignore(r->in, r->words->all[n - 1].text);
    return LH_OK;
}

/* Reads a command line: a launcher such as torchrun, then all options. `text`
 * may also be a configuration's default options, which have no launcher. */
static lh_status read_options(reader *r, const char *text, size_t len,
                              lh_error *err)
{
    lhi_command_line words;
    LHI_TRY(
        lhi_command_line_parse(text, len, r->t->file, r->in->mem, &words, err));
    for (uint32_t i = 0; i < words.n; i++)
        LHI_TRY(
            lhi_command_line_check_expanded(r->t->file, &words.all[i], err));
    r->words = &words;
    r->i = 0;
    if (!r->usual)
        LHI_TRY(read_launcher(r, err));
    if (words.n == 0)
        return lhi_fail(err, LH_EINPUT, "%s: has no options", r->t->file);
    while (r->i < words.n)
        LHI_TRY(read_option(r, err));
    return LH_OK;
}

lh_status lhi_titan_read_config(const char *options, lhi_imported_job *in,
                                lhi_titan *t, lh_error *err)
{
    reader r = {.in = in, .t = t, .usual = true};
    return read_options(&r, options, strlen(options), err);
}

/* --- TOML ----------------------------------------------------------------- */

/* Checks whether a TOML value is the text true or false. */
static bool is_boolean(const lhi_node *node)
{
    return strcmp(node->text, "true") == 0 || strcmp(node->text, "false") == 0;
}

/* Checks that a TOML value has this type. Returns NULL, or an error such as
 * "must be a number". */
static const char *check_scalar(const lhi_node *node, lhi_titan_type type)
{
    if (node->kind != LHI_SCALAR)
        return type == LHI_TITAN_WORD     ? "must be a string"
               : type == LHI_TITAN_NUMBER ? "must be a number"
                                          : "must be true or false";
    switch (type) {
    case LHI_TITAN_WORD:
        return node->quoted ? NULL : "must be a quoted string";
    case LHI_TITAN_NUMBER:
        return !node->quoted && !is_boolean(node)
                   ? NULL
                   : "must be a number without quotes";
    case LHI_TITAN_TRUTH:
        return !node->quoted && is_boolean(node)
                   ? NULL
                   : "must be true or false without quotes";
    default:
        return NULL;
    }
}

/* Checks that a TOML value is a list of strings, or with `nested` a list of
 * such lists. Returns NULL, or the error. */
static const char *check_list(const lhi_node *node, bool nested)
{
    if (node->kind != LHI_LIST)
        return nested ? "must be a list of lists of strings"
                      : "must be a list of strings";
    for (const lhi_node *n = node->first; n; n = n->next) {
        const char *wrong =
            nested ? check_list(n, false) : check_scalar(n, LHI_TITAN_WORD);
        if (wrong)
            return nested ? "must be a list of lists of strings"
                          : "must be a list of strings";
    }
    return NULL;
}

/* Returns a list's strings, joined with commas; NULL if memory runs out. */
static const char *join_strings(lhi_arena *mem, const lhi_node *list)
{
    lhi_text text = {0};
    for (const lhi_node *n = list->first; n; n = n->next)
        lhi_text_printf(&text, "%s%s", n->index ? "," : "", n->text);
    const char *copy =
        text.failed ? NULL : lhi_arena_strdup(mem, text.len ? text.data : "");
    lhi_text_fini(&text);
    return copy;
}

/* Copies a TOML value. A list of strings gives one text per string, a list of
 * lists one per inner list. */
static lh_status read_toml_value(reader *r, const lhi_node *node,
                                 lhi_titan_type type, lhi_input_value *given,
                                 lh_error *err)
{
    const bool list = node->kind == LHI_LIST;
    lhi_command_line_word *values =
        allocate_values(r, given, list ? node->n_items : 1);
    const lhi_node *n = list ? node->first : node;
    if (!values)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < given->n; i++, n = n->next) {
        const char *text =
            type == LHI_TITAN_LISTS
                ? join_strings(r->in->mem, n)
                : lhi_arena_strdup(r->in->mem,
                                   n->kind == LHI_SCALAR ? n->text : "");
        if (!text)
            return lhi_fail_nomem(err);
        values[i] = (lhi_command_line_word){.text = text, .line = n->line};
    }
    return LH_OK;
}

/* Reads a TOML key and stores its value.
 * LH_EINPUT: the key is unknown or its value has a wrong type. */
static lh_status read_toml_key(reader *r, const lhi_doc *doc,
                               const lhi_node *node, const char *name,
                               lh_error *err)
{
    found_key k;
    lhi_input_value given = {.line = node->line};
    if (!find_key(name, LHI_TITAN_TOML, &k))
        return reject_unknown(r, name, node->line, err);
    const bool list = k.type == LHI_TITAN_WORDS || k.type == LHI_TITAN_LISTS;
    const char *wrong = k.type == LHI_TITAN_ANY ? NULL
                        : list ? check_list(node, k.type == LHI_TITAN_LISTS)
                               : check_scalar(node, k.type);
    if (wrong)
        return lhi_doc_fail(doc, node, err, LH_EINPUT, "%s", wrong);
    LHI_TRY(read_toml_value(r, node, k.type, &given, err));
    return store_key(r, &k, name, &given, err);
}

/* Reads all keys of a TOML table and its subtables. `before` is the table's
 * name, "" for the root. */
static lh_status read_toml_table(reader *r, const lhi_doc *doc,
                                 const lhi_node *map, const char *before,
                                 lh_error *err)
{
    char name[MOST_NAME];
    for (const lhi_node *n = map->first; n; n = n->next) {
        snprintf(name, sizeof name, "%s%s%s", before, *before ? "." : "",
                 n->key);
        if (n->kind == LHI_MAP)
            LHI_TRY(read_toml_table(r, doc, n, name, err));
        else
            LHI_TRY(read_toml_key(r, doc, n, name, err));
    }
    return LH_OK;
}

/* Reads all keys of a TOML file. */
static lh_status read_toml(reader *r, const char *text, size_t len,
                           lh_error *err)
{
    lhi_doc *doc = NULL;
    LHI_TRY(
        lhi_toml_parse(text, len, r->t->file, LHI_INPUT_ARGUMENTS, &doc, err));
    lh_status status = read_toml_table(r, doc, doc->root, "", err);
    lhi_doc_free(doc);
    return status;
}

/* --- input ---------------------------------------------------------------- */

/* Checks whether a text is TOML: its first line, after comments, is "[table]",
 * "a.b = c" or "a = b". "NAME=value" precedes a launcher instead. */
static bool is_toml(const char *text, size_t len)
{
    const char *at = text, *end = text + len;
    while (at < end && (isspace((unsigned char)*at) || *at == '#')) {
        const char *line =
            *at == '#' ? memchr(at, '\n', (size_t)(end - at)) : at;
        at = line ? line + 1 : end;
    }
    const char *key = at;
    bool dots = false;
    if (at == end || *at == '-')
        return false;
    if (*at == '[')
        return true;
    while (at < end &&
           (isalnum((unsigned char)*at) || (*at && strchr("_-.\"'", *at))))
        dots = *at++ == '.' || dots;
    const char *behind = at;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    return at > key && at < end && *at == '=' && (dots || at > behind);
}

lh_status lhi_titan_read(const char *text, size_t len, const char *name,
                         lhi_imported_job *in, lhi_titan *out, lh_error *err)
{
    reader r = {.in = in, .t = out};
    const bool toml = is_toml(text, len);
    *out = (lhi_titan){.file = name,
                       .form = toml ? LHI_TITAN_TOML : LHI_TITAN_OPTIONS};
    return toml ? read_toml(&r, text, len, err)
                : read_options(&r, text, len, err);
}

/* --- values --------------------------------------------------------------- */

/* Returns torchtitan key `key` with its file, name and given value, as input of
 * the lhi_input_value functions. */
static lhi_input_key make_key(const lhi_titan *t, lhi_titan_key key)
{
    return (lhi_input_key){
        t->file, rows[key].shown + (t->form == LHI_TITAN_TOML ? DASHES : 0),
        &t->keys[key]};
}

lh_status lhi_titan_add_origins(const lhi_titan *t, lhi_imported_job *in,
                                lh_error *err)
{
    const lhi_titan_key model =
        t->form == LHI_TITAN_TOML ? LHI_TITAN_FLAVOR : LHI_TITAN_CONFIG;
    const struct {
        const char *path;
        lhi_titan_key key;
    } origins[] = {
        {"model", model},
        {"training.global_batch", LHI_TITAN_GLOBAL_BATCH},
        {"training.global_batch", LHI_TITAN_LOCAL_BATCH},
        {"training.sequence", LHI_TITAN_SEQUENCE},
        {"training.precision", LHI_TITAN_PRECISION},
        {"training.zero", LHI_TITAN_RESHARD},
        {"training.recompute", LHI_TITAN_AC_MODE},
        {"training.dispatcher", LHI_TITAN_EXPERT_BACKEND},
        {"cluster.gpu", LHI_TITAN_PRECISION}, /* lacks it */
        {"layout.tensor", LHI_TITAN_TENSOR},
        {"layout.context", LHI_TITAN_CONTEXT},
        {"layout.expert", LHI_TITAN_EXPERT},
        {"layout.expert_tensor", LHI_TITAN_EXPERT_TENSOR},
        {"layout.pipeline", LHI_TITAN_PIPELINE},
        {"layout.data", LHI_TITAN_REPLICATE},
        {"layout.data", LHI_TITAN_SHARD},
        {"layout.micro_batch", LHI_TITAN_MICROBATCH},
        {"layout.layers", LHI_TITAN_STAGES},
        {"layout.layers", LHI_TITAN_LAYERS_PER_STAGE},
        {"layout.layers", LHI_TITAN_PIPELINE},
        {"layout.chunks_per_device", LHI_TITAN_STAGES},
        {"layout.chunks_per_device", LHI_TITAN_LAYERS_PER_STAGE},
        {"layout.schedule", LHI_TITAN_SCHEDULE},
    };
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        LHI_TRY(lhi_import_add_origin(in, origins[i].path,
                                      make_key(t, origins[i].key), err));
    return LH_OK;
}

bool lhi_titan_is_given(const lhi_titan *t, lhi_titan_key key)
{
    return t->keys[key].is_given;
}

const char *lhi_titan_get_string(const lhi_titan *t, lhi_titan_key key)
{
    return t->keys[key].is_given && t->keys[key].n ? t->keys[key].values[0].text
                                                   : NULL;
}

lh_status lhi_titan_fail(const lhi_titan *t, lhi_titan_key key, lh_status code,
                         lh_error *err, const char *format, ...)
{
    char why[400];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return lhi_input_value_fail(make_key(t, key), code, err, "%s", why);
}

lh_status lhi_titan_get_integer(const lhi_titan *t, lhi_titan_key key,
                                uint32_t least, uint32_t most, uint32_t *out,
                                lh_error *err)
{
    int64_t number = *out;
    LHI_TRY(lhi_input_value_get_integer(make_key(t, key), least, most, &number,
                                        err));
    *out = (uint32_t)number;
    return LH_OK;
}

lh_status lhi_titan_get_optional_integer(const lhi_titan *t, lhi_titan_key key,
                                         uint32_t *out, lh_error *err)
{
    int64_t number = *out;
    LHI_TRY(lhi_input_value_get_integer(make_key(t, key), -1, 1 << 30, &number,
                                        err));
    if (number == 0 && t->keys[key].is_given)
        return lhi_titan_fail(
            t, key, LH_EINPUT, err,
            "is 0; use -1 to derive it from the other degrees");
    *out = number < 0 ? 0 : (uint32_t)number;
    return LH_OK;
}

lh_status lhi_titan_get_choice(const lhi_titan *t, lhi_titan_key key,
                               const char *const *names, uint32_t *out,
                               lh_error *err)
{
    return lhi_input_value_get_choice(make_key(t, key), names, out, err);
}

bool lhi_titan_get_bool(const lhi_titan *t, lhi_titan_key key, bool usual)
{
    const char *word = lhi_titan_get_string(t, key);
    return word ? strcmp(word, "true") == 0 : usual;
}
