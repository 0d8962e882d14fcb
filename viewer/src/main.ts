import { mount } from "svelte";
import "@fontsource-variable/inter/index.css";
import "@fontsource-variable/jetbrains-mono/index.css";
import "./app.css";
import "./code.css";
import App from "./App.svelte";
import { http, type Api } from "./api/client";

async function api(): Promise<Api> {
  const bundle = document.querySelector<HTMLMetaElement>('meta[name="rollscope-bundle"]');
  return bundle ? (await import("./api/files")).files(bundle.content) : http;
}

const target = document.getElementById("app");
if (target) mount(App, { target, props: { api: await api() } });
