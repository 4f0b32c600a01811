"""Room `preprocess`: one raw thing ⇄ tensors. Text, chat, image, audio; one file each."""
