"""A tokenizer of single bytes and a few special tokens, with nothing but `decode`."""

SPECIAL = {
    256: "<|im_start|>",
    257: "<|im_end|>",
    258: "<|start_header_id|>",
    259: "<|end_header_id|>",
    260: "<|eot_id|>",
    261: "<|begin_of_text|>",
}


class ByteTokenizer:
    all_special_ids = tuple(SPECIAL)

    def encode(self, text: str, special: bool = True) -> list[int]:
        ids: list[int] = []
        while text:
            for id, mark in SPECIAL.items():
                if special and text.startswith(mark):
                    ids.append(id)
                    text = text[len(mark) :]
                    break
            else:
                ids += text[0].encode()
                text = text[1:]
        return ids

    def decode(self, ids: list[int]) -> str:
        return b"".join(SPECIAL[i].encode() if i > 255 else bytes([i]) for i in ids).decode(
            "utf-8", "replace"
        )
