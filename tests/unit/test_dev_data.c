/* SPDX-License-Identifier: Apache-2.0 */
/* Windows in text and token files; words and merges in the tokenizer. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "runtime/device/data.h"
#include "runtime/device/tokenizer.h"

#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static void write_file(char *path, const void *bytes, size_t n)
{
    strcpy(path, "/tmp/lh-data-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, bytes, n), (int64_t)n);
    close(fd);
}

/* Checks that each epoch has every window once, in a different order, without
 * the validation part. */
static void windows(void)
{
    enum { N = 1000, S = 7 };
    uint16_t tokens[N];
    char path[32];
    lh_error err;
    lhi_data *data;
    int32_t w[S + 1];
    for (int i = 0; i < N; i++)
        tokens[i] = (uint16_t)(i + 256);
    write_file(path, tokens, sizeof tokens);
    lhi_data_options o = {.path = path,
                          .kind = LHI_DATA_U16,
                          .vocab = 2000,
                          .sequence = S,
                          .validation = 0.1,
                          .seed = 4};
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_n_tokens(data), N);
    uint64_t n = lhi_data_n_windows(data, 0), same = 0;
    CHECK_INT(n, 899 / S);
    CHECK_INT(lhi_data_n_windows(data, 1), 99 / S);
    int32_t *first = calloc(n, sizeof *first);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        bool seen[N] = {false};
        for (uint64_t i = 0; i < n; i++) {
            CHECK_OK(lhi_data_read_window(data, 0, epoch * n + i, w, &err),
                     err);
            int32_t at = w[0] - 256;
            CHECK(at >= 0 && at % S == 0 && at + S < 900 && !seen[at]);
            seen[at] = true;
            for (int j = 0; j <= S; j++)
                CHECK_INT(w[j], 256 + at + j);
            same += epoch > 0 && first[i] == at;
            first[i] = at;
        }
    }
    CHECK_MSG(same < n / 4, "%u windows are where they were", (unsigned)same);
    for (uint64_t i = 0; i < 30; i++) {
        CHECK_OK(lhi_data_read_window(data, 1, i, w, &err), err);
        CHECK_INT(w[0], 256 + 900 + (int)(i % 14) * S);
    }
    free(first);
    lhi_data_close(data);
    o.vocab = 800;
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_read_window(data, 1, 0, w, &err), LH_EINPUT);
    CHECK_HAS(err.text, "token 900 is 1156, but the model's vocabulary has");
    CHECK_INT(truncate(path, 100), 0);
    CHECK_INT(lhi_data_read_window(data, 1, 0, w, &err), LH_EIO);
    CHECK_HAS(err.text, "was truncated while in use");
    lhi_data_close(data);
    CHECK_INT(truncate(path, 99), 0);
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "not a multiple of 2-byte tokens");
    CHECK_INT(truncate(path, 10), 0);
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "too few");
    unlink(path);
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EIO);
}

static void kinds(void)
{
    const unsigned char bytes[] = {1, 0, 0, 0, 255, 255, 255, 255,
                                   2, 0, 1, 0, 7,   0,   0,   0};
    char path[32];
    lh_error err;
    lhi_data *data;
    int32_t w[4];
    write_file(path, bytes, sizeof bytes);
    lhi_data_options o = {
        .path = path, .kind = LHI_DATA_BYTES, .vocab = 256, .sequence = 3};
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_n_windows(data, 0), 5);
    CHECK_INT(lhi_data_n_windows(data, 1), 0);
    CHECK_INT(lhi_data_read_window(data, 1, 0, w, &err), LH_EINVAL);
    lhi_data_close(data);
    o.kind = LHI_DATA_U32, o.sequence = 1, o.vocab = 70000;
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    int bad = 0;
    for (uint64_t i = 0; i < 3; i++)
        if (lhi_data_read_window(data, 0, i, w, &err) != LH_OK) {
            bad++;
            CHECK_HAS(err.text,
                      "token 1 is 4294967295, but the model's vocabulary has");
        }
    CHECK_INT(bad, 2); /* two windows contain 0xffffffff */
    lhi_data_close(data);
    unlink(path);
}

static void words(void)
{
    static const char *const cases[][8] = {
        {"Hello", " world", "!", NULL},
        {"don", "'t", " 12", "ab", "  ", " x", NULL},
        {"a", "   ", NULL},
        {"we", "'ll", " '", "S", "\n\n", "\n", "z", NULL},
        {"na\xc3\xafve", " \xe4\xb8\xad\xe6\x96\x87", "\xc2\xb2", "\xc2\xa0",
         "\xe2\x80\x94", "x", NULL},
        {"\xff\xfe", " \xc3", "(", NULL}, /* not UTF-8; "(" joins */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] - 1; i++) {
        char text[128] = "";
        for (size_t j = 0; cases[i][j]; j++)
            strcat(text, cases[i][j]);
        size_t at = 0, len = strlen(text);
        for (size_t j = 0; cases[i][j]; j++) {
            size_t n = lhi_pretokenize_word(text + at, len - at);
            CHECK_MSG(n == strlen(cases[i][j]), "case %zu, word %zu: %zu bytes",
                      i, j, n);
            at += strlen(cases[i][j]);
        }
        CHECK_INT(at, len);
    }
    CHECK_INT(lhi_pretokenize_word("\xff\xfe(", 3), 3);
}

static const char bpe[] =
    "{\"normalizer\": null, \"pre_tokenizer\": {\"type\": \"ByteLevel\","
    "\"add_prefix_space\": false}, \"model\": {\"type\": \"BPE\", \"vocab\":"
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"\xc4\xa0\": 3, \"ab\": 4, \"abc\": 5,"
    "\"bc\": 6, \"\xc4\xa0"
    "a\": 7, \"aa\": 8},"
    "\"merges\": [\"b c\", \"a b\", [\"\xc4\xa0\", \"a\"], \"a bc\","
    "\"a a\"]}}";

static void merges(void)
{
    static const struct {
        const char *text;
        size_t n;
        uint32_t tokens[8];
    } cases[] = {
        {"abc", 1, {5}},         {"ab", 1, {4}}, {"ab abc", 3, {4, 7, 6}},
        {"aaaaa", 3, {8, 8, 0}}, {"", 0, {0}},   {"cab", 2, {2, 4}},
    };
    lh_error err;
    lhi_tokenizer *t;
    CHECK_OK(lhi_tokenizer_parse(bpe, strlen(bpe), "t.json", &t, &err), err);
    CHECK_INT(lhi_tokenizer_size(t), 9);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t *tokens;
        size_t n;
        CHECK_OK(lhi_tokenizer_encode(t, cases[i].text, strlen(cases[i].text),
                                      &tokens, &n, &err),
                 err);
        CHECK_MSG(n == cases[i].n, "%s: %zu tokens", cases[i].text, n);
        for (size_t j = 0; j < n && j < cases[i].n; j++)
            CHECK_INT(tokens[j], cases[i].tokens[j]);
        lhi_tokens_free(tokens);
    }
    uint32_t *none;
    size_t n;
    CHECK_INT(lhi_tokenizer_encode(t, "abd", 3, &none, &n, &err), LH_EINPUT);
    CHECK_HAS(err.text, "no token for byte 100");
    lhi_tokenizer_free(t);
}

static void refused(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "model is not of type BPE"},
        {"{", "t.json:1"},
        {"{\"model\": {\"type\": \"Unigram\"}}", "not of type BPE"},
        {"{\"model\": {}, \"normalizer\": {\"type\": \"NFC\"}}",
         "has a normalizer"},
        {"{\"model\": {}, \"pre_tokenizer\": {\"type\": \"Metaspace\"}}",
         "not ByteLevel"},
        {"{\"model\": {}, \"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "model.vocab is missing"},
        {"{\"model\": {\"vocab\": {\"a\": -1}, \"merges\": []},"
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "a token is not a number"},
        {"{\"model\": {\"vocab\": {\"a\": 1}, \"merges\": [\"a a\"]},"
         "\"pre_tokenizer\": {\"type\": \"ByteLevel\"}}",
         "entry 0 is not a pair"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lh_error err;
        lhi_tokenizer *t;
        CHECK(lhi_tokenizer_parse(cases[i].text, strlen(cases[i].text),
                                  "t.json", &t, &err) != LH_OK);
        CHECK_HAS(err.text, cases[i].says);
    }
}

static void encoded_file(void)
{
    char text[32], json[32];
    lh_error err;
    lhi_data *data;
    int32_t w[3];
    write_file(text, "abc ab", 6);
    write_file(json, bpe, strlen(bpe));
    lhi_data_options o = {
        .path = text, .tokenizer = json, .vocab = 9, .sequence = 2};
    CHECK_OK(lhi_data_open(&o, &data, &err), err);
    CHECK_INT(lhi_data_n_tokens(data), 3); /* abc, " ", ab */
    CHECK_OK(lhi_data_read_window(data, 0, 0, w, &err), err);
    CHECK_INT(w[0], 5);
    CHECK_INT(w[1], 3);
    CHECK_INT(w[2], 4);
    lhi_data_close(data);
    o.vocab = 8;
    CHECK_INT(lhi_data_open(&o, &data, &err), LH_EINPUT);
    CHECK_HAS(err.text, "has 9 tokens, but the model's vocabulary only 8");
    unlink(text);
    unlink(json);
}

int main(void)
{
    RUN(windows);
    RUN(kinds);
    RUN(words);
    RUN(merges);
    RUN(refused);
    RUN(encoded_file);
    return test_summary();
}
