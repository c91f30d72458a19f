/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/device/tokenizer.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/input_limits.h"
#include "base/json_input.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TOKEN = 1 << 24, /* largest vocabulary */
    MAX_WORD = 1 << 18,  /* bytes; encoding a word takes about 60 times as much
                          * memory */
    NONE = -1,
};

/* A rule that merges two tokens into one. Hash table with open addressing;
 * `left` NONE: free slot. */
typedef struct merge {
    int32_t left, right, to;
    uint32_t rank; /* lower merges first */
} merge;

/* A token and its bytes; `bytes` NULL: free slot. */
typedef struct whole_word {
    const char *bytes;
    uint32_t n, token;
} whole_word;

/* A parsed tokenizer: vocabulary and merge rules. */
struct lhi_tokenizer {
    lhi_arena *mem;
    const char *name;
    uint32_t size;      /* the largest token + 1 */
    int32_t bytes[256]; /* token for each byte */
    lhi_word_rule rule; /* splits text into words first */
    bool normalizes;    /* converts text to Unicode's normal form C before */
    /* Whole words that are tokens without merging; hash table, NULL: none. */
    struct whole_word *words;
    size_t word_mask; /* number of its slots - 1 */
    size_t mask;      /* number of merge slots - 1 */
    merge *merges;
};

/* Writes the UTF-8 character that represents a byte in GPT-2's vocabulary to
 * `out` and returns its length. Printable Latin-1 characters represent
 * themselves, other bytes the characters from 256 on. */
static size_t format_byte(unsigned byte, char *out)
{
    unsigned c = byte;
    bool shown = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) ||
                 byte >= 174;
    if (!shown)
        c = 256 + (byte <= 32 ? byte : byte <= 160 ? byte - 127 + 33 : 67);
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

/* Returns the hash slot of the token pair left, right: its merge's slot, or an
 * empty one if the pair has no merge. */
static size_t find_merge_slot(const lhi_tokenizer *t, int32_t left,
                              int32_t right)
{
    uint64_t z = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    size_t i = (size_t)(z ^ (z >> 31)) & t->mask;
    while (t->merges[i].left != NONE &&
           (t->merges[i].left != left || t->merges[i].right != right))
        i = (i + 1) & t->mask;
    return i;
}

/* Fails with LH_EUNSUPPORTED because of a feature of the tokenizer; `what`
 * names it. */
static lh_status fail_unsupported(const lhi_tokenizer *t, const char *what,
                                  lh_error *err)
{
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "%s: %s; only byte-level BPE tokenizers like those of "
                    "GPT-2, Llama 3 and Qwen are supported: docs/training.md",
                    t->name, what);
}

/* Checks whether a JSON value is missing, null or false. */
static bool is_absent(const json_t *node)
{
    return !node || json_is_null(node) || json_is_false(node);
}

/* Finds the rule for splitting text into words that a tokenizer's Split
 * expression stands for (GPT-2, Llama 3 or Qwen 2); false: another expression.
 * */
static bool find_rule(const char *expression, lhi_word_rule *out)
{
#define BEGIN "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define END "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
    static const struct {
        const char *expression;
        lhi_word_rule rule;
    } known[] = {{"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "
                  "?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
                  LHI_WORDS_GPT2},
                 {BEGIN "\\p{N}{1,3}" END, LHI_WORDS_LLAMA3},
                 {BEGIN "\\p{N}" END, LHI_WORDS_QWEN2}};
#undef BEGIN
#undef END
    for (size_t i = 0; expression && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(expression, known[i].expression) == 0) {
            *out = known[i].rule;
            return true;
        }
    return false;
}

/* Checks that a pre-tokenizer is of type ByteLevel and adds no space before the
 * text (add_prefix_space); otherwise LH_EUNSUPPORTED. */
static lh_status check_byte_level(const lhi_tokenizer *t, const json_t *pre,
                                  lh_error *err)
{
    const char *type = json_string_value(json_object_get(pre, "type"));
    if (!type || strcmp(type, "ByteLevel") != 0)
        return fail_unsupported(
            t,
            "its pre_tokenizer is neither ByteLevel nor Split with ByteLevel",
            err);
    if (!is_absent(json_object_get(pre, "add_prefix_space")))
        return fail_unsupported(t, "it has add_prefix_space", err);
    return LH_OK;
}

/* Reads the pre-tokenizer: ByteLevel, or a sequence of Split and ByteLevel. */
static lh_status read_pretokenizer(lhi_tokenizer *t, const json_t *pre,
                                   lh_error *err)
{
    const json_t *parts = json_object_get(pre, "pretokenizers");
    if (!parts) {
        t->rule = json_is_false(json_object_get(pre, "use_regex"))
                      ? LHI_WORDS_NONE
                      : LHI_WORDS_GPT2;
        return check_byte_level(t, pre, err);
    }
    const json_t *split = json_array_get(parts, 0);
    const json_t *last = json_array_get(parts, 1);
    const char *type = json_string_value(json_object_get(split, "type"));
    const char *how = json_string_value(json_object_get(split, "behavior"));
    LHI_TRY(check_byte_level(t, last, err));
    if (json_array_size(parts) != 2 || !type || strcmp(type, "Split") != 0 ||
        !how || strcmp(how, "Isolated") != 0 ||
        !is_absent(json_object_get(split, "invert")) ||
        !json_is_false(json_object_get(last, "use_regex")))
        return fail_unsupported(t,
                                "its pre_tokenizer is not an isolating Split "
                                "with ByteLevel without use_regex",
                                err);
    const json_t *pattern = json_object_get(split, "pattern");
    if (!find_rule(json_string_value(json_object_get(pattern, "Regex")),
                   &t->rule))
        return fail_unsupported(
            t, "pre_tokenizer.pretokenizers[0].pattern is another expression",
            err);
    return LH_OK;
}

/* Checks that a parsed tokenizer.json is byte-level BPE without unsupported
 * features; otherwise LH_EUNSUPPORTED. */
static lh_status check_kind(lhi_tokenizer *t, const json_t *root, lh_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *dropout = json_object_get(model, "dropout");
    const json_t *normalizer = json_object_get(root, "normalizer");
    const char *type = json_string_value(json_object_get(model, "type"));
    const char *form = json_string_value(json_object_get(normalizer, "type"));
    if (!json_is_object(model) || (type && strcmp(type, "BPE") != 0))
        return fail_unsupported(t, "its model is not of type BPE", err);
    t->normalizes = form && strcmp(form, "NFC") == 0;
    if (!is_absent(normalizer) && !t->normalizes)
        return fail_unsupported(t, "it has a normalizer other than NFC", err);
    if (!is_absent(json_object_get(model, "byte_fallback")) ||
        (!is_absent(dropout) && json_number_value(dropout) > 0))
        return fail_unsupported(t, "it has byte_fallback or dropout", err);
    return read_pretokenizer(t, pre, err);
}

/* Reads the tokenizer's vocabulary from JSON: the number of tokens, and each
 * single byte's token. */
static lh_status read_vocab(lhi_tokenizer *t, const json_t *vocab,
                            lh_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(vocab))
        return lhi_fail(err, LH_EINPUT, "%s: model.vocab is missing", t->name);
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
    {
        json_int_t token = json_integer_value(value);
        if (!json_is_integer(value) || token < 0 || token >= MAX_TOKEN)
            return lhi_fail(
                err, LH_EINPUT,
                "%s: model.vocab: a token is not a number from 0 to %d",
                t->name, MAX_TOKEN - 1);
        if ((uint32_t)token >= t->size)
            t->size = (uint32_t)token + 1;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[3] = "";
        text[format_byte(byte, text)] = '\0';
        const json_t *token = json_object_get(vocab, text);
        t->bytes[byte] = token ? (int32_t)json_integer_value(token) : NONE;
    }
    return LH_OK;
}

/* Returns the hash slot of a word's bytes: its token's, or an empty one. */
static size_t find_word_slot(const lhi_tokenizer *t, const char *bytes,
                             size_t n)
{
    uint64_t z = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        z = (z ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    size_t i = (size_t)(z ^ (z >> 32)) & t->word_mask;
    while (t->words[i].bytes &&
           (t->words[i].n != n || memcmp(t->words[i].bytes, bytes, n) != 0))
        i = (i + 1) & t->word_mask;
    return i;
}

/* Decodes a token's text in GPT-2's characters into its bytes in place; returns
 * their number. 0: the text has another character, as special tokens may. */
static size_t decode_token(char *text)
{
    size_t n = 0, len = strlen(text);
    for (size_t at = 0; at < len;) {
        unsigned byte = 0;
        char shown[3] = "";
        size_t size = 0;
        for (; byte < 256; byte++) {
            size = format_byte(byte, shown);
            if (size <= len - at && memcmp(text + at, shown, size) == 0)
                break;
        }
        if (byte == 256)
            return 0;
        at += size;
        text[n++] = (char)byte;
    }
    return n;
}

/* Reads a tokenizer's whole words with ignore_merges: all tokens. */
static lh_status read_words(lhi_tokenizer *t, const json_t *vocab,
                            lh_error *err)
{
    const char *key;
    json_t *value;
    size_t room = 16;
    while (room < 2 * json_object_size(vocab))
        room *= 2;
    t->word_mask = room - 1;
    if (!(t->words = LHI_NEW(t->mem, whole_word, room)))
        return lhi_fail_nomem(err);
    json_object_foreach((json_t *)(uintptr_t)vocab, key, value)
    {
        char *bytes = lhi_arena_strdup(t->mem, key);
        if (!bytes)
            return lhi_fail_nomem(err);
        const size_t n = decode_token(bytes);
        if (n > 0)
            t->words[find_word_slot(t, bytes, n)] = (whole_word){
                bytes, (uint32_t)n, (uint32_t)json_integer_value(value)};
    }
    return LH_OK;
}

/* Parses a merge, "left right" or ["left", "right"], into *left and *right,
 * which point into `buffer` of `room` bytes. False: another form, or too
 * long. */
static bool parse_pair(const json_t *item, char *buffer, size_t room,
                       const char **left, const char **right)
{
    const char *text = json_string_value(item);
    if (!text) {
        *left = json_string_value(json_array_get(item, 0));
        *right = json_string_value(json_array_get(item, 1));
        return *left && *right && json_array_size(item) == 2;
    }
    const char *space = strchr(text, ' ');
    size_t n = strlen(text);
    if (!space || space == text || n >= room || strchr(space + 1, ' '))
        return false;
    memcpy(buffer, text, n + 1);
    buffer[space - text] = '\0';
    *left = buffer;
    *right = buffer + (space - text) + 1;
    return true;
}

/* Looks up a merge's tokens: left, right, and both joined; false: one is not in
 * the vocabulary. */
static bool find_merge(const json_t *vocab, const char *left, const char *right,
                       merge *out)
{
    char both[1024];
    size_t a = strlen(left), b = strlen(right);
    if (a + b >= sizeof both)
        return false;
    memcpy(both, left, a);
    memcpy(both + a, right, b + 1);
    const json_t *l = json_object_get(vocab, left);
    const json_t *r = json_object_get(vocab, right);
    const json_t *to = json_object_get(vocab, both);
    if (!l || !r || !to)
        return false;
    out->left = (int32_t)json_integer_value(l);
    out->right = (int32_t)json_integer_value(r);
    out->to = (int32_t)json_integer_value(to);
    return true;
}

/* Reads the merges in priority order into the hash table. If a pair occurs
 * twice, the first one counts. */
static lh_status read_merges(lhi_tokenizer *t, const json_t *vocab,
                             const json_t *list, lh_error *err)
{
    size_t n = json_array_size(list), room = 16;
    if (!json_is_array(list) || n > MAX_TOKEN)
        return lhi_fail(err, LH_EINPUT, "%s: model.merges is missing", t->name);
    while (room < 2 * n)
        room *= 2;
    t->mask = room - 1;
    if (!(t->merges = LHI_NEW(t->mem, merge, room)))
        return lhi_fail_nomem(err);
    for (size_t i = 0; i < room; i++)
        t->merges[i].left = NONE;
    for (size_t i = 0; i < n; i++) {
        char buffer[1024];
        const char *left, *right;
        merge m = {.rank = (uint32_t)i};
        if (!parse_pair(json_array_get(list, i), buffer, sizeof buffer, &left,
                        &right) ||
            !find_merge(vocab, left, right, &m))
            return lhi_fail(
                err, LH_EINPUT,
                "%s: model.merges: entry %zu is not a pair of tokens that, "
                "with their concatenation, are in the vocabulary",
                t->name, i);
        size_t slot = find_merge_slot(t, m.left, m.right);
        if (t->merges[slot].left == NONE)
            t->merges[slot] = m;
    }
    return LH_OK;
}

/* Reads the vocabulary and the merges from the parsed file. */
static lh_status read_parts(lhi_tokenizer *t, const json_t *root, lh_error *err)
{
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    LHI_TRY(check_kind(t, root, err));
    LHI_TRY(read_vocab(t, vocab, err));
    if (!is_absent(json_object_get(model, "ignore_merges")))
        LHI_TRY(read_words(t, vocab, err));
    return read_merges(t, vocab, json_object_get(model, "merges"), err);
}

lh_status lhi_tokenizer_parse(const char *text, size_t len, const char *name,
                              lhi_tokenizer **out, lh_error *err)
{
    json_error_t why;
    json_t *root = lhi_json_load(text, len, 0, &why);
    if (!root)
        return lhi_fail(err, LH_EINPUT, "%s:%d: not valid JSON: %s", name,
                        why.line, why.text);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_tokenizer *t = mem ? LHI_NEW(mem, lhi_tokenizer, 1) : NULL;
    lh_status status = LH_OK;
    if (!t || !(t->name = lhi_arena_strdup(mem, name))) {
        status = lhi_fail_nomem(err);
    } else {
        t->mem = mem;
        status = read_parts(t, root, err);
    }
    json_decref(root);
    if (status != LH_OK) {
        lhi_arena_free(mem);
        return status;
    }
    *out = t;
    return LH_OK;
}

lh_status lhi_tokenizer_read(const char *path, lhi_tokenizer **out,
                             lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lhi_input_read(path, LHI_INPUT_TOKENIZER, &text, &len, err));
    lh_status status = lhi_tokenizer_parse(text, len, path, out, err);
    lh_text_free(text);
    return status;
}

void lhi_tokenizer_free(lhi_tokenizer *tokenizer)
{
    if (tokenizer)
        lhi_arena_free(tokenizer->mem);
}

uint32_t lhi_tokenizer_size(const lhi_tokenizer *tokenizer)
{
    return tokenizer->size;
}

/* A word during merging: a linked list of tokens in an array, and a heap of
 * candidate merges, ordered by rank, then from left to right. */
typedef struct word {
    int32_t *tokens; /* NONE: merged into the preceding one */
    uint32_t *next, *last;
    uint32_t n;
    lhi_heap heap;
} word;

/* Pushes the token pair that begins at token i of the word to the heap of
 * possible merges, if the pair has a merge. False: out of memory. */
static bool push_candidate(const lhi_tokenizer *t, word *w, uint32_t i)
{
    uint32_t next = w->next[i];
    if (next >= w->n)
        return true;
    const merge *m =
        &t->merges[find_merge_slot(t, w->tokens[i], w->tokens[next])];
    if (m->left == NONE)
        return true;
    /* The entry stores the pair, because the pair may be gone when it is
     * popped. */
    return lhi_heap_push(&w->heap,
                         (lhi_event){.time_ns = m->rank,
                                     .rank = i,
                                     .seq = (uint64_t)(uint32_t)m->left << 32 |
                                            (uint32_t)m->right,
                                     .payload = (uint64_t)m->to});
}

/* Applies a word's merges in priority order until no pair has a merge; false:
 * out of memory. */
static bool merge_all(const lhi_tokenizer *t, word *w)
{
    lhi_event e;
    for (uint32_t i = 0; i < w->n; i++)
        if (!push_candidate(t, w, i))
            return false;
    while (lhi_heap_pop(&w->heap, &e)) {
        uint32_t i = (uint32_t)e.rank, gone = w->next[i];
        if (gone >= w->n || w->tokens[i] == NONE ||
            w->tokens[i] != (int32_t)(e.seq >> 32) ||
            w->tokens[gone] != (int32_t)(e.seq & UINT32_MAX))
            continue;
        w->tokens[i] = (int32_t)e.payload;
        w->tokens[gone] = NONE;
        w->next[i] = w->next[gone];
        if (w->next[i] < w->n)
            w->last[w->next[i]] = i;
        if (!push_candidate(t, w, i) ||
            (i > 0 && !push_candidate(t, w, w->last[i])))
            return false;
    }
    return true;
}

/* Encodes one word of n bytes into `out`, at most n tokens; *made receives
 * their number. `w`: scratch. */
static lh_status encode_word(const lhi_tokenizer *t, word *w, const char *text,
                             uint32_t n, uint32_t *out, size_t *made,
                             lh_error *err)
{
    const whole_word *whole =
        t->words ? &t->words[find_word_slot(t, text, n)] : NULL;
    if (whole && whole->bytes) {
        out[(*made)++] = whole->token;
        return LH_OK;
    }
    w->n = n;
    for (uint32_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)text[i];
        w->tokens[i] = t->bytes[byte];
        w->next[i] = i + 1;
        w->last[i] = i > 0 ? i - 1 : 0;
        if (w->tokens[i] == NONE)
            return lhi_fail(
                err, LH_EINPUT,
                "%s: the vocabulary has no token for byte %u of the text",
                t->name, byte);
    }
    if (!merge_all(t, w))
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++)
        if (w->tokens[i] != NONE)
            out[(*made)++] = (uint32_t)w->tokens[i];
    return LH_OK;
}

/* Encodes a text word by word; appends its tokens to `out` and adds their
 * number to *n. `w`: scratch. */
static lh_status encode_all(const lhi_tokenizer *t, word *w, const char *text,
                            size_t len, uint32_t *out, size_t *n, lh_error *err)
{
    for (size_t at = 0; at < len;) {
        size_t size = lhi_pretokenize_word(t->rule, text + at, len - at);
        LHI_TRY(encode_word(t, w, text + at, (uint32_t)size, out, n, err));
        at += size;
    }
    return LH_OK;
}

/* Returns the bytes of the text's longest word. */
static size_t find_longest_word(const lhi_tokenizer *t, const char *text,
                                size_t len)
{
    size_t most = 1;
    for (size_t at = 0; at < len;) {
        size_t size = lhi_pretokenize_word(t->rule, text + at, len - at);
        most = size > most ? size : most;
        at += size;
    }
    return most;
}

/* Encodes a text in the tokenizer's normal form. */
static lh_status encode_text(const lhi_tokenizer *t, const char *text,
                             size_t len, uint32_t **tokens, size_t *n,
                             lh_error *err)
{
    size_t longest = find_longest_word(t, text, len), made = 0;
    if (t->rule != LHI_WORDS_NONE && longest > MAX_WORD)
        return lhi_fail(err, LH_EINPUT,
                        "a word of %zu bytes is longer than %d KiB; insert "
                        "spaces or line ends into the text",
                        longest, MAX_WORD >> 10);
    lhi_arena *mem = lhi_arena_make(0);
    uint32_t *out = malloc((len + 1) * sizeof *out);
    word w = {.heap = {0}};
    lh_status status = LH_OK;
    if (!out || !mem || !(w.tokens = LHI_NEW(mem, int32_t, longest)) ||
        !(w.next = LHI_NEW(mem, uint32_t, longest)) ||
        !(w.last = LHI_NEW(mem, uint32_t, longest)))
        status = lhi_fail_nomem(err);
    if (status == LH_OK)
        status = encode_all(t, &w, text, len, out, &made, err);
    lhi_heap_fini(&w.heap);
    lhi_arena_free(mem);
    if (status != LH_OK) {
        free(out);
        return status;
    }
    *tokens = out;
    *n = made;
    return LH_OK;
}

lh_status lhi_tokenizer_encode(const lhi_tokenizer *tokenizer, const char *text,
                               size_t len, uint32_t **tokens, size_t *n,
                               lh_error *err)
{
    char *normal = NULL;
    if (len >= INT32_MAX)
        return lhi_fail(err, LH_EINPUT, "a text of %zu bytes is too long", len);
    if (tokenizer->normalizes) {
        LHI_TRY(lhi_text_normalize(text, len, &normal, &len, err));
        text = normal;
    }
    lh_status status = encode_text(tokenizer, text, len, tokens, n, err);
    free(normal);
    return status;
}

void lhi_tokens_free(uint32_t *tokens)
{
    free(tokens);
}
